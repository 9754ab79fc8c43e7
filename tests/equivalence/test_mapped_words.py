"""Words of labels and lists of training texts in mapped files give the predictions of those in memory, bit for bit."""

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from helpers.synthetic import topics
from unidex import native
from unidex.data.concepts import Concept, Term
from unidex.errors import ModelError
from unidex.model.model import Model
from unidex.scoring import label_texts, lexical, mapped_matches, mapped_words, match_files, match_rows, nearest_texts
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.nearest_texts import NearestTexts
from unidex.verbs.train import train

DATA = topics(num_labels=40, num_train=400, num_test=40)
SETTINGS = ["encoder.dim=16", "features.min_df=1", "train.epochs=2", "train.validation=0.5"]
FILES = sorted({*mapped_words.FILES, *match_files.FILES})


def map_all(patch):
    """Treat few labels and texts as very many."""
    for module in (lexical, mapped_matches):
        patch.setattr(module, "MAPPED_ABOVE", -1)
    for module, name, value in (
        (mapped_words, "_TEXTS_AT_ONCE", 7),
        (mapped_words, "_LISTED_AT_ONCE", 9),
        (mapped_words, "_TERMS_AT_ONCE", 100),
        (match_files, "_AT_ONCE", 16),
        (match_files, "_ROWS_AT_ONCE", 11),
        (match_rows, "_TEXTS_AT_ONCE", 5),
        (nearest_texts, "COMPRESSED_UP_TO", 0),
        (label_texts, "LISTED_UP_TO", 0),
    ):
        patch.setattr(module, name, value)


@pytest.fixture
def mapped(monkeypatch):
    map_all(monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def lists():
    """The kNN part has lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_texts, "EXACT_UP_TO", 50)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model with everything in memory, and one with mapped files, trained alike."""
    folder = tmp_path_factory.mktemp("trained")
    train(DATA, settings=SETTINGS, out=folder / "plain")
    with pytest.MonkeyPatch.context() as patch:
        map_all(patch)
        train(DATA, settings=SETTINGS, out=folder / "mapped")
    return folder


@pytest.fixture(params=["kernels", "no kernels"])
def kernels(request, monkeypatch):
    if request.param == "no kernels":
        monkeypatch.setattr(native, "kernels", None)
    elif native.kernels is None:
        pytest.skip("the kernels are not compiled here")


def changed(model):
    """A model after all changes of labels: their predictions follow."""
    texts = list(DATA.test.texts)
    found = [model.topk(texts, 8)]
    model.add_labels(["w1 brandnew", "w80c w81d", "brandnew w1"], ["a", "b", "c"])
    model.rename_label(3, "w80c w81d")
    model.rename_label(40, "old new")
    found.append(model.topk([*texts, "w80c w81d", "a brandnew w1", "old new"], 8))
    model.remove_labels([41, 5])
    model.remember(["w80c and w81d"], sparse.csr_array(([1.0], [3], [0, 1]), shape=(1, 43)))
    found.append(model.topk([*texts, "w80c w81d"], 8))
    return found


def assert_equal(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert left.ids.tolist() == right.ids.tolist()
        assert left.scores.tolist() == right.scores.tolist()


def test_training_saving_and_changes_of_labels_give_the_same(trained, kernels, mapped, tmp_path):
    names = {file.name for file in (trained / "mapped" / "lexical").iterdir()}
    assert {*FILES} <= names
    assert not {"columns.numbers", "match_words.numbers"} & names
    assert (trained / "mapped" / "neighbours" / "ranking.faiss").exists()
    plain, model = (Model.load(trained / name) for name in ("plain", "mapped"))
    assert plain.scorer.fitted.as_dict() == model.scorer.fitted.as_dict()
    wanted = changed(plain)
    assert_equal(changed(model), wanted)
    model.save(tmp_path / "again")
    assert_equal([Model.load(tmp_path / "again").topk([*DATA.test.texts, "w80c w81d"], 8)], wanted[-1:])
    assert not list(trained.glob("**/unidex-*"))


def labels_of(number):
    rng = np.random.default_rng(0)
    words = [f"word{at}" for at in range(3000)]
    return [" ".join(words[at] for at in row) for row in rng.integers(len(words), size=(number, 4))]


@pytest.mark.parametrize("concepts", [{}, {3: Concept(texts=(Term("word7 word9"), Term("word8"))), 900: Concept()}])
def test_a_part_in_files_answers_as_one_in_memory(kernels, request, tmp_path, concepts):
    labels = labels_of(2000)
    texts = [*labels[:40], "word7 word8 word9 word10", "", " ".join(labels[50:90])]
    parts = [LexicalPart.of(labels, concepts)]
    request.getfixturevalue("mapped")
    parts.append(LexicalPart.of(labels, concepts, scratch=tmp_path))
    parts[1].save(tmp_path / "part")
    parts.append(LexicalPart.load(tmp_path / "part", labels))
    # More entries than 32 bits can count.
    parts.append(LexicalPart.load(tmp_path / "part", labels))
    lists = parts[3]._labels._lists_FL
    lists.indptr = lists.indptr.astype(np.int64)
    ids = np.random.default_rng(1).integers(2000, size=(len(texts), 20))
    for other in parts[1:]:
        for part in (parts[0], other):
            assert (part.rows(texts) != parts[0].rows(texts)).nnz == 0
        one, found = (part.search(part.rows(texts), 30) for part in (parts[0], other))
        assert_equal([one], [found])
        for name in ("overlaps", "features"):
            values = []
            for part in (parts[0], other):
                if name == "overlaps":
                    values.append(part.overlaps(part.rows(texts), ids))
                else:
                    values.append(part.matches.features(part.matches.find(texts), ids))
            assert {key: value.tolist() for key, value in values[0].items()} == {
                key: value.tolist() for key, value in values[1].items()
            }


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_or_is_missing_is_named(mapped, tmp_path, name):
    labels = labels_of(300)
    LexicalPart.of(labels).save(tmp_path / "whole")
    for damage in ("cut", "missing"):
        folder = tmp_path / damage
        shutil.copytree(tmp_path / "whole", folder)
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        if damage == "cut":
            (folder / name).write_bytes(content[: len(content) // 2])
        elif name in ("word_starts.npy", "match_rows.npy"):
            continue  # These tell which form a folder has.
        with pytest.raises(ModelError, match=name):
            LexicalPart.load(folder, labels)


@pytest.mark.parametrize("name", ["lists.bin", "list_sizes.npy", "lists.faiss", "ranking.faiss"])
def test_a_file_of_lists_that_was_cut_is_named(mapped, tmp_path, name):
    vectors = np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32)
    NearestTexts.of(vectors).write(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=name):
        NearestTexts.read(tmp_path, 500, 16)


def test_what_is_read_into_memory_does_not_grow_with_labels(tmp_path):
    """Words of labels in memory take more than this, those in files do not."""
    labels, most = labels_of(30_000), 8_000_000
    parts = {"memory": tmp_path / "memory", "files": tmp_path / "files"}
    LexicalPart.of(labels).save(parts["memory"])
    with pytest.MonkeyPatch.context() as patch:
        for module in (lexical, mapped_matches):
            patch.setattr(module, "MAPPED_ABOVE", 0)
        LexicalPart.of(labels).save(parts["files"])
    used = {}
    for name, folder in parts.items():
        tracemalloc.start()
        part = LexicalPart.load(Path(folder), labels)
        before = tracemalloc.get_traced_memory()[1]
        part.search(part.rows(labels[:2]), 5)
        part.overlaps(part.rows(labels[:2]), np.array([[0, 1], [5, 6]]))
        part.matches.features(part.matches.find(labels[:2]), np.array([[0, 1], [5, 6]]))
        used[name] = max(before, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert used["files"] < most < used["memory"], used
