"""What inspect counts, on sets small enough to count by hand."""

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse

from helpers.strategies import datasets
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.summary import summarise, warnings_of
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts


def shop():
    labels = Labels(Texts.of(["shoe", "hat", "hat", ""]))
    train = Split.of(
        Texts.of(["red shoe", "hat", "hat", ""]),
        sparse.csr_array(np.array([[1.0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0.5, 0, 0, 0]])),
        sparse.csr_array(np.array([[0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])),
    )
    test = Split.of(
        Texts.of(["hat", "a new shoe", ""]), sparse.csr_array(np.array([[0.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]))
    )
    return Dataset("shop", labels, train, test)


def test_every_number_of_a_small_shop():
    found = summarise(shop(), num_examples=2)
    examples = found.pop("examples")
    said = found.pop("warnings")
    assert found == {
        "name": "shop",
        "num_train": 4,
        "num_test": 3,
        "num_labels": 4,
        "labels_per_text": 1.0,
        "labels_per_text_test": pytest.approx(2 / 3, abs=1e-4),
        "texts_per_label": 1.0,
        "max_texts_per_label": 3,
        "graded_relevance": True,
        "filter_pairs_train": 2,
        "filter_pairs_test": 0,
        "propensity_a": 0.55,
        "propensity_b": 1.5,
        "words_per_text": 1.0,
        "words_per_label": 0.75,
        "share_of_head_labels": 0.0,
        "share_of_torso_labels": 0.0,
        "share_of_tail_labels": 1.0,
        "labels_never_in_train": 2,
        "texts_without_labels_train": 1,
        "texts_without_labels_test": 1,
        "empty_texts_train": 1,
        "empty_texts_test": 1,
        "empty_label_texts": 1,
        "test_texts_in_train": 1,
        "texts_that_are_labels_train": 2,
        "texts_that_are_labels_filtered_train": 1,
        "texts_that_are_labels_test": 1,
        "texts_that_are_labels_filtered_test": 0,
    }
    assert examples == [
        {"text": "red shoe", "labels": [{"id": 0, "text": "shoe"}]},
        {"text": "", "labels": [{"id": 0, "text": "shoe"}]},
    ]
    assert said == [
        "1 test texts (33.3%) are train texts too: test scores may be too high",
        "2 of 3 texts that are labels have no filter pair for themselves",
        "2 labels have no train text: only their own text can find them",
        "1 train texts have no label",
        "1 test texts have no label",
        "1 labels have no text: they cannot be found by their text",
    ]


def test_texts_are_labels_by_their_titles():
    packer = Packer()
    packer.add_pairs(["hat", "hat of wool"], ["made of wool", ""])
    train = Split.of(Texts.packed(packer), sparse.csr_array(np.array([[1.0], [1.0]])))
    found = summarise(Dataset("s", Labels(Texts.of(["hat"])), train))
    assert found["texts_that_are_labels_train"] == 1
    assert found["warnings"] == [
        "1 texts are labels themselves and there are no filter pairs: is a text its own answer?"
    ]


def test_head_torso_and_tail_have_the_bounds_of_the_metrics():
    counts = [101, 100, 10, 9, 1, 0]
    positives = (np.arange(101)[:, None] < np.array(counts)[None, :]).astype(float)
    train = Split.of(Texts.of([f"t{row}" for row in range(101)]), sparse.csr_array(positives))
    found = summarise(Dataset("s", Labels(Texts.of(list("abcdef"))), train))
    shares = [found[f"share_of_{name}_labels"] for name in ("head", "torso", "tail")]
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=1e-4)


@given(datasets())
def test_counts_agree_with_the_data(data):
    found = summarise(data, num_examples=10)
    dense = data.train.positives.toarray()
    assert found["labels_per_text"] == pytest.approx((dense > 0).sum() / len(data.train), abs=1e-4)
    assert found["labels_never_in_train"] == int(((dense > 0).sum(axis=0) == 0).sum())
    assert found["texts_without_labels_train"] == int(((dense > 0).sum(axis=1) == 0).sum())
    assert found["test_texts_in_train"] == sum(1 for text in data.test.texts if text and text in list(data.train.texts))
    assert len(found["examples"]) == min(10, len(data.train))
    assert found["warnings"] == warnings_of(found)
    titles = [title for title, _ in data.labels.texts.fields()]
    for name, split in (("train", data.train), ("test", data.test)):
        own = {row: title for row, (title, _) in enumerate(split.texts.fields()) if title and title in titles}
        filtered = {(int(row), titles[int(label)]) for row, label in np.argwhere(split.filter_pairs.toarray())}
        named = [row for row, title in own.items() if (row, title) in filtered]
        assert found[f"texts_that_are_labels_{name}"] == len(own)
        assert found[f"texts_that_are_labels_filtered_{name}"] == len(named)
