"""The lexical part the slow way: sets of words and character n-grams, and TF-IDF one pair at a time."""

import math
from collections import Counter
from functools import lru_cache

from helpers.naive_features import naive_features, settings_with
from helpers.naive_matches import NaiveMatches
from unidex.scoring.lexical_columns import READING

_SETTINGS = settings_with(parts=True, bigrams=False, chars=True, chars_min=4, chars_max=4)


@lru_cache(maxsize=1024)  # a test asks for one text once per label
def naive_terms(text):
    """The distinct words of a text, parts and beginnings among them, and its distinct n-grams."""
    found = naive_features(text, _SETTINGS)
    words = {name for kind, name in found if kind != "char"}
    words |= {name[: READING.beginning] for name in words}
    return {"word": frozenset(words), "char": frozenset(name for kind, name in found if kind == "char")}


class NaiveLexical:
    """Label texts and the frequencies of their features, by name."""

    def __init__(self, label_texts):
        self.labels = [naive_terms(text) for text in label_texts]
        self.matches = NaiveMatches(label_texts)
        self.num_counted = len(self.labels)
        self.frequencies = Counter()
        for terms in self.labels:
            self.frequencies.update((kind, name) for kind in terms for name in terms[kind])

    def learn(self, text):
        """The terms of a label that came later: features that no label had become known, with frequency 1."""
        terms = naive_terms(text)
        for kind, names in terms.items():
            for name in names:
                self.frequencies.setdefault((kind, name), 1)
        return terms

    def add(self, text):
        self.labels.append(self.learn(text))
        self.matches.add(text)

    def rename(self, label, text):
        self.labels[label] = self.learn(text)
        self.matches.rename(label, text)

    def known(self, text):
        """The terms of a text that any label has."""
        terms = naive_terms(text)
        return {kind: {name for name in terms[kind] if (kind, name) in self.frequencies} for kind in terms}

    def idf(self, kind, name):
        return 1 + math.log((1 + self.num_counted) / (1 + min(self.frequencies[kind, name], self.num_counted)))

    def squares(self, kind, names):
        """The sum of the squared idf values."""
        return sum(self.idf(kind, name) ** 2 for name in sorted(names))

    def overlap(self, kind, text, label):
        own, other = self.known(text)[kind], self.labels[label][kind]
        if not own & other:
            return 0.0
        return self.squares(kind, own & other) / math.sqrt(self.squares(kind, own) * self.squares(kind, other))

    def coverage(self, text, label):
        own, other = self.known(text)["word"], self.labels[label]["word"]
        return self.squares("word", own & other) / self.squares("word", other) if own & other else 0.0

    def label_length(self, label):
        return sum(map(len, self.labels[label].values()))

    def text_length(self, text):
        return sum(map(len, self.known(text).values()))

    def rare_overlap(self, text, label, most):
        """The part of the overlap that words of at most so many labels have: what candidates are found by."""
        own, other = self.known(text)["word"], self.labels[label]["word"]
        rare = {name for name in own & other if self.frequencies["word", name] <= most}
        if not rare:
            return 0.0
        return self.squares("word", rare) / math.sqrt(self.squares("word", own) * self.squares("word", other))
