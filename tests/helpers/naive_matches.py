"""Matches the slow way: sets of words, one text and one label at a time."""

import re

from unidex.features.word_strings import fold, words_in


def naive_words(text):
    return [fold(word) for word in words_in(text)]


class NaiveMatches:
    """The words of label texts, and in how many training texts each label matches and is right."""

    def __init__(self, label_texts):
        self.labels = [[self.words_of(text)] for text in label_texts]
        self.matched, self.right = [0] * len(self.labels), [0] * len(self.labels)

    @staticmethod
    def words_of(text):
        return frozenset(naive_words(re.sub(r"\s*\([^()]*\)", "", text) or text))

    def add(self, text, *further):
        self.labels.append([self.words_of(each) for each in (text, *further)])
        self.matched.append(0)
        self.right.append(0)

    def rename(self, label, text):
        self.labels[label][0] = self.words_of(text)
        self.matched[label] = self.right[label] = 0

    def learn(self, texts, labels_of_texts):
        for text, own in zip(texts, labels_of_texts, strict=True):
            for label in self.of(text):
                self.matched[label] += 1
                self.right[label] += label in own

    def of(self, text):
        """The count, the first place and the words of the text of each label that matches."""
        words, found = naive_words(text), {}
        for label, texts in enumerate(self.labels):
            whole = [each for each in texts if each and each <= set(words)]
            if whole:
                numbers = [
                    (len(each), min(words.count(word) for word in each), max(words.index(word) for word in each), each)
                    for each in whole
                ]
                best = max(numbers, key=lambda found: found[:2])
                found[label] = best[1], best[2] / len(words), best[3]
        return found

    def features(self, text, label, found=None):
        """The features of a text and a label; ``found`` is what ``of`` gives for the text."""
        found = self.of(text) if found is None else found
        total = {"num_matches": len(found)}
        if label not in found:
            unmatched = {"match_count": 0, "match_first": 1, "match_rate": 0, "match_texts": -1}
            return unmatched | {"match_words": 0, "match_ambiguity": 0} | total
        count, first, words = found[label]
        mean = sum(self.right) / max(1, sum(self.matched))
        return {
            "match_count": count,
            "match_first": first,
            "match_rate": (self.right[label] + 3 * mean) / (self.matched[label] + 3),
            "match_texts": self.matched[label],
            "match_words": len(words),
            "match_ambiguity": sum(words in texts for texts in self.labels),
        } | total
