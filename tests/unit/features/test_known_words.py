"""Known words: which words of a text a model has seen, and how familiar the rest is."""

import numpy as np
import pytest

from unidex.config import Features
from unidex.features.extractor import FeatureExtractor
from unidex.features.known_words import KnownWords, random_texts

TEXTS = ["a red hat and a red shoe", "the printer prints a page", "the printer is red", "a hat and a shoe"]


@pytest.fixture(scope="module")
def words():
    return KnownWords(FeatureExtractor.fit(TEXTS, ["wireless network"], Features(chars=True)), ["wireless network"])


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("Red HAT", 1.0),
        ("red qwertz", 0.5),
        ("qwertz asdfgh", 0.0),
        ("redHat", 1.0),  # both parts are known
        ("redQwertz", 0.0),
        ("wireless", 1.0),  # in the text of a label alone
        ("page", 0.0),  # in a single text: no feature of its own
        ("", 0.0),
        ("?! ...", 0.0),
    ],
)
def test_the_share_of_known_words(words, text, known):
    assert words.shares([text]).known_N[0] == known


def test_a_word_is_known_alike_however_it_comes(words):
    # Small letters of ASCII take a short way; capitals and other letters the long one.
    small = ["red", "printerish", "qwertz", "wireless", "shoe", "hats"]
    texts = [*small, *(word.capitalize() for word in small), *(word.upper() for word in small)]
    alone = [np.concatenate([words.shares([text]) for _ in range(2)]) for text in texts]
    words._memory = {}
    known_N, familiarity_N = words.shares(texts)
    for start in (0, len(small), 2 * len(small)):
        own = slice(start, start + len(small))
        assert known_N[own].tolist() == known_N[: len(small)].tolist()
        assert familiarity_N[own].tolist() == familiarity_N[: len(small)].tolist()
    assert [one[:, 0].tolist() for one in alone] == [
        [known, familiar] * 2 for known, familiar in zip(known_N.tolist(), familiarity_N.tolist(), strict=True)
    ]
    # By hand: the n-grams of four letters of #printerish# that "printer" has.
    ngrams = {"#pri", "prin", "rint", "inte", "nter", "ter#"}
    marked = "#printerish#"
    own_ngrams = [marked[at : at + 4] for at in range(len(marked) - 3)]
    assert familiarity_N[1] == np.float32(sum(ngram in ngrams for ngram in own_ngrams) / len(own_ngrams))


def test_of_very_many_labels_the_words_of_evenly_spread_ones_are_known(monkeypatch):
    features = FeatureExtractor.fit(TEXTS, [], Features(num_buckets=0))
    labels = [f"label{number}" for number in range(20)]
    monkeypatch.setattr("unidex.features.extractor.MAX_COUNTED", 7)
    words = KnownWords(features, labels)
    assert words.label_keys.tolist() == KnownWords(features, labels[::3]).label_keys.tolist()
    assert len(words.label_keys) == 7


def test_familiarity_counts_ngrams_of_unknown_words_and_rare_words_more(words):
    familiar = words.shares(["red", "printerish", "qwertz", "and qwertz", "red hat qwertz"]).familiarity_N
    assert familiar[0] == 1
    assert 0.5 < familiar[1] < 1
    assert familiar[2] == 0
    # One of two words is known, but a frequent one.
    assert 0 < familiar[3] < 0.5
    assert familiar[3] < familiar[4]


def test_the_words_of_added_labels_are_known_and_texts_do_not_depend_on_each_other():
    words = KnownWords(FeatureExtractor.fit(TEXTS, [], Features()), [])
    texts = ["keyboard shortcut", "red keyboard", "red hat"]
    alone = [words.shares([text]) for text in texts]
    together = words.shares(texts)
    for place in range(2):
        assert np.array_equal(together[place], np.concatenate([one[place] for one in alone]))
    assert words.shares(texts).known_N.tolist() == [0, 0.5, 1]
    words.add(["Keyboard"])
    assert words.shares(texts).known_N.tolist() == [0.5, 1, 1]
    assert words.shares([]).known_N.tolist() == []


def test_random_texts_are_not_familiar(words):
    familiar = words.shares(random_texts(TEXTS, 100)).familiarity_N
    assert familiar.mean() < 0.3
    assert random_texts(TEXTS, 3) == random_texts(TEXTS, 3)
