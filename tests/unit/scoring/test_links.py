"""Links: which labels a text is named like, what links to them, files, and what changes without training."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from helpers.synthetic import QUICK, pages, topics
from unidex import native
from unidex.data.dataset import Dataset, Split
from unidex.errors import ModelError
from unidex.features.analyser import PLAIN
from unidex.model.explanation import explain
from unidex.model.incremental import teach
from unidex.model.model import Model
from unidex.scoring.label_matches import LabelMatches
from unidex.scoring.links import LINKS, Links, count_true_links, named_labels
from unidex.storage.small_numbers import save_numbers
from unidex.training.lexical_setup import lexical_part, true_links
from unidex.verbs.train import train

LABELS = ["red", "red shoes", "shoes (footwear)", "golden gate", "gate golden", "", "red red shoe"]
matrices = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=6)


def csr(rows, width=4):
    return sparse.csr_array(np.array(rows, dtype=np.float32).reshape(-1, width))


@pytest.mark.parametrize("has_kernels", [True, False])
def test_a_text_is_named_like_the_labels_it_begins_with(has_kernels, monkeypatch):
    if not has_kernels:
        monkeypatch.setattr(native, "kernels", None)
    finder = LabelMatches.of(LABELS)
    texts = ["Red shoes for men", "shoes, red", "gate golden and red", "the red shoes", "shoes", "red", ""]
    named = named_labels(finder, finder.find(texts))
    found = [[LABELS[label] for label in named[[row]].indices] for row in range(len(texts))]
    assert found == [
        ["red shoes"],
        ["red shoes"],
        ["golden gate", "gate golden"],
        [],
        ["shoes (footwear)"],
        ["red"],
        [],
    ]


@given(matrices, matrices, matrices)
def test_links_are_those_of_a_loop(train_names, train_labels, asked):
    number = min(len(train_names), len(train_labels))
    names, positives = csr(train_names[:number]), csr(train_labels[:number])
    expected = np.zeros((len(asked), 4), dtype=np.float32)
    for text, own in enumerate(asked):
        for row in range(number):
            for label in range(4):
                starts = [start for start in range(4) if own[start] and train_labels[row][start] and start != label]
                expected[text, label] += train_names[row][label] * len(starts)
    links = Links.of(names, positives)
    assert np.array_equal(links.of_texts(csr(asked)).toarray(), expected)
    half = number // 2
    parts = Links.of(names[:half], positives[:half]).with_texts(names[half:], positives[half:])
    assert np.array_equal(parts.of_texts(csr(asked)).toarray(), expected)


def test_true_links_are_counted_by_pairs():
    links, positives = csr([[2, 1, 0, 0], [0, 0, 3, 0]]), csr([[1, 0, 0, 1], [0, 1, 0, 0]])
    assert count_true_links(links, positives) == (1, 3)
    assert count_true_links(csr([[0, 0, 0, 0]]), positives[:1]) == (0, 0)


def test_a_label_that_very_many_refer_to_has_no_links():
    names, labels = np.eye(1003, dtype=np.float32)[:1001], np.zeros((1001, 1003), dtype=np.float32)
    labels[:, 1001], labels[:1000, 1002] = 1, 1
    links = Links.of(sparse.csr_array(names), sparse.csr_array(labels))
    found = links.of_texts(sparse.csr_array(np.eye(1003, dtype=np.float32)[1001:]))
    assert np.diff(found.indptr).tolist() == [0, 1000]


def test_a_name_of_very_many_labels_is_none():
    finder = LabelMatches.of(["red"] * 8 + ["blue"] * 9)
    named = named_labels(finder, finder.find(["red shoes", "blue", "red"]))
    assert np.diff(named.indptr).tolist() == [8, 0, 8]
    assert named.indices.tolist() == [*range(8)] * 2


def test_true_links_of_many_texts_are_those_of_some(monkeypatch):
    data = pages(num_pages=600)
    part, rows = lexical_part(data, PLAIN, np.arange(len(data.train))), np.arange(len(data.train))
    monkeypatch.setattr("unidex.training.lexical_setup._MAX_COMPARED", 10)
    assert len(true_links(data, part, rows)) > 0


def test_files_give_the_same_links_and_wrong_ones_are_refused(tmp_path):
    links = Links.of(csr([[1, 0, 0, 1], [0, 1, 0, 0]]), csr([[0, 1, 1, 0], [1, 0, 0, 1]]))
    links.save(tmp_path / "links")
    asked = csr(np.eye(4).tolist())
    loaded = Links.load(tmp_path / "links", 4)
    assert len(loaded) == len(links) == 6
    assert np.array_equal(loaded.of_texts(asked).toarray(), links.of_texts(asked).toarray())
    with pytest.raises(ModelError, match="below 3"):
        Links.load(tmp_path / "links", 3)
    save_numbers(tmp_path / "links" / "counts", np.zeros(6, dtype=np.int64))
    with pytest.raises(ModelError, match="above 0"):
        Links.load(tmp_path / "links", 4)


def test_links_stay_where_labels_are_added():
    links = Links.of(csr([[1, 0, 0, 0]]), csr([[0, 0, 0, 1]])).grown(6)
    assert links.of_texts(csr([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1]], 6)).toarray()[:, 0].tolist() == [1, 0]
    more = links.with_texts(csr([[0, 0, 0, 0, 0, 1]], 6), csr([[0, 0, 0, 1, 0, 0]], 6))
    assert more.of_texts(csr([[0, 0, 0, 1, 0, 0]], 6)).toarray().tolist() == [[1, 0, 0, 0, 0, 1]]


def test_links_that_are_mostly_wrong_are_not_used(caplog):
    data = pages()
    part = lexical_part(data, PLAIN, rows := np.arange(len(data.train)))
    with caplog.at_level(logging.INFO):
        assert len(true_links(data, part, rows)) > 0
    assert "Links between labels: 100%" in caplog.text
    shuffled = np.random.default_rng(1).permutation(rows)
    wrong = Split.of(data.train.texts, data.train.positives[shuffled])
    assert true_links(Dataset("wrong", data.labels, wrong, data.test), part, rows) is None
    assert true_links(topics(), lexical_part(topics(), PLAIN, np.arange(240)), np.arange(240)) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    settings = [*QUICK, "train.epochs=2", "train.validation=0.4", "predict.rank=learned"]
    train(pages(num_pages=1200), "unidec", settings=settings, out=out)
    return out


def test_a_ranker_reads_links_where_pages_refer_to_each_other(folder):
    model, data = Model.load(folder), pages(num_pages=1200)
    assert set(LINKS) <= set(model.scorer.ranker().features)
    texts, truth = list(data.test.texts), data.test.positives.toarray()
    found = model.topk(texts, 1).ids[:, 0]
    # By words alone, nothing can be known of these pages.
    assert truth[np.arange(len(texts)), found].mean() > 0.9
    model.scorer.links = Links.of(data.train.positives[:0], data.train.positives[:0])
    without = model.topk(texts, 1).ids[:, 0]
    assert truth[np.arange(len(texts)), without].mean() < 0.5
    part = explain(Model.load(folder), texts[0], labels=[int(found[0])])
    assert "links" in str(part)


def test_a_ranker_of_few_texts_reads_no_links_and_none_are_announced(caplog):
    settings = [*QUICK, "train.epochs=1", "train.validation=0.4", "predict.rank=learned"]
    with caplog.at_level(logging.INFO):
        model = train(pages(num_pages=400), "unidec", settings=settings)
    assert model.scorer.links is None
    assert "few (trees need" in caplog.text
    assert "Links between labels" not in caplog.text


def test_texts_that_are_remembered_and_taught_link_too(folder):
    model, data = Model.load(folder), pages(num_pages=1200)
    before = len(model.scorer.links)
    model.remember(list(data.test.texts), data.test.positives)
    assert len(model.scorer.links) == before + 900
    asked = csr(np.eye(1200)[data.test.positives.indices[:5]], 1200)
    assert (model.scorer.links.of_texts(asked).sum(axis=1) > 0).all()


def test_a_model_with_links_keeps_them_in_its_folder(folder, tmp_path):
    model, texts = Model.load(folder), list(pages(num_pages=1200).test.texts)
    ids = model.add_labels(["a page that is new"], ["new"])
    assert model.scorer.links.num_labels == 1201 == ids[0] + 1
    model.save(tmp_path / "copy")
    one, other = (some.topk(texts, 3) for some in (model, Model.load(tmp_path / "copy")))
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.scores, other.scores)


def test_taught_texts_link_once(folder):
    model, data = Model.load(folder), pages(num_pages=1200)
    links, texts = model.scorer.links, list(data.test.texts[:4])
    page = int(data.test.positives.indices[0])
    none = sparse.csr_array((4, 1200), dtype=np.float32)
    one = none.tolil()
    one[0, page] = 1
    teach(model, texts, sparse.csr_array(one))
    assert len(model.scorer.links) == len(links) + 1
    # The text and its label are known now, and a second one with another label is a further link.
    one[0, (page + 1) % 1200] = 1
    teach(model, texts, sparse.csr_array(one))
    assert len(model.scorer.links) == len(links) + 2
    asked = csr(np.eye(1200)[[page]], 1200)
    assert model.scorer.links.of_texts(asked).max() == links.of_texts(asked).max()
