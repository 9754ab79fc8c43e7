"""Label texts as points: soft targets against the dense formula, walks against their expectation, what is written."""

import doctest
import json
import re
import tracemalloc
from inspect import signature
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from helpers.command import call
from helpers.paths import DOCS
from helpers.strategies import assert_equal_splits, assert_equal_texts
from helpers.synthetic import topics
from unidex import config
from unidex.augment import methods
from unidex.augment import word_changes as words
from unidex.augment.cooccurrence import glas_targets, soft_targets
from unidex.augment.label_points import label_points
from unidex.augment.walks import walk_targets
from unidex.cli import augment as verb
from unidex.config import Augment
from unidex.data.dataset import Dataset, Labels, Propensity, Split
from unidex.data.formats import read, write
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.errors import ConfigError, DataError
from unidex.metrics.bins import frequency_bins
from unidex.verbs.augment import augment

# Frequencies 3, 2, 1, 0; label 1 is always with label 0, label 2 is alone.
SMALL = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]])


def table(rows):
    return sparse.csr_array(np.asarray(rows, dtype=np.float32))


def random_table(seed, num_texts=30, num_labels=12, density=0.2):
    return table(np.random.default_rng(seed).random((num_texts, num_labels)) < density)


def dense_targets(dense, delta, *, glas=False):
    """The formulas on a dense product, a pair at a time."""
    dense = (dense > 0).astype(int)
    together = dense.T @ dense
    targets = np.eye(dense.shape[1])
    for j in range(dense.shape[1]):
        for i in range(dense.shape[1]):
            if i == j or together[i, j] == 0:
                continue
            of_j, of_i = together[i, j] / together[j, j], together[i, j] / together[i, i]
            if glas:
                score = 0.5 * (of_j + of_i)
                targets[j, i] = 1 / (1 + np.exp(-score)) if score > delta else 0
            else:
                targets[j, i] = of_j if of_j > delta else 0
    return targets


def assert_sound(targets):
    """What whoever trains on targets relies on."""
    assert targets.dtype == np.float32
    assert targets.has_sorted_indices
    assert all(np.all(np.diff(row) > 0) for row in np.split(targets.indices, targets.indptr[1:-1]))
    assert np.all((targets.data > 0) & (targets.data <= 1))


def test_targets_are_shares_of_the_texts_of_the_label():
    targets = soft_targets(table(SMALL), delta=0.1, max_targets=0)
    expected = [[1, 2 / 3, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(targets.toarray(), expected, rtol=1e-6)
    assert_sound(targets)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]), st.integers(1, 200), st.booleans())
def test_blocks_give_what_the_dense_product_gives(seed, delta, block, glas):
    positives = random_table(seed, density=0.05 + 0.3 * (seed % 2))
    make = glas_targets if glas else soft_targets
    targets = make(positives, delta=delta, max_targets=0, block=block)
    np.testing.assert_allclose(
        targets.toarray(), dense_targets(positives.toarray(), delta, glas=glas), rtol=1e-6, atol=1e-9
    )
    assert_sound(targets)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
def test_max_targets_keeps_the_highest_and_the_own_label(seed, most, glas):
    positives = random_table(seed, num_texts=8, density=0.4)
    make = glas_targets if glas else soft_targets
    whole = make(positives, delta=0.0, max_targets=0).toarray()
    found = make(positives, delta=0.0, max_targets=most, block=20).toarray()
    for j, row in enumerate(whole):
        ranked = sorted(np.flatnonzero(row), key=lambda i: (i != j, -row[i], i))
        np.testing.assert_array_equal(np.flatnonzero(found[j]), sorted(ranked[:most]))
        np.testing.assert_array_equal(found[j][ranked[:most]], row[ranked[:most]])


def test_only_the_rows_of_some_labels():
    positives = random_table(3)
    whole = soft_targets(positives, delta=0.1, max_targets=3).toarray()
    some = soft_targets(positives, delta=0.1, max_targets=3, labels=np.array([1, 4, 11]), block=9)
    np.testing.assert_array_equal(some.toarray(), whole[[1, 4, 11]])


@pytest.mark.parametrize(("together", "alone", "delta"), [(1, 9, 0.1), (3, 27, 0.1), (2, 8, 0.2), (3, 7, 0.3)])
def test_a_target_of_delta_is_left_out_and_one_above_it_stays(together, alone, delta):
    rows = [[1, 1]] * together + [[1, 0]] * alone
    assert soft_targets(table(rows), delta=delta, max_targets=0).toarray()[0].tolist() == [1, 0]
    kept = soft_targets(table(rows[:-1]), delta=delta, max_targets=0).toarray()[0]
    assert kept.tolist() == pytest.approx([1, together / (together + alone - 1)])


def test_relevance_does_not_weigh():
    dense = SMALL * np.array([[1, 0.2, 1, 1], [3, 7, 1, 1], [0.1, 1, 1, 1], [1, 1, 30, 1]])
    for make in (soft_targets, glas_targets):
        graded, binary = (make(table(rows), delta=0.1, max_targets=0) for rows in (dense, SMALL))
        np.testing.assert_array_equal(graded.toarray(), binary.toarray())
        assert_sound(graded)


def test_labels_that_no_text_has_get_themselves_alone():
    positives = table([[0, 1, 0, 1], [0, 0, 0, 1]])
    for method in ("gandalf", "glas", "random-walk", "one-hot"):
        targets = label_points(positives, Augment(method=method), seed=0).targets.toarray()
        np.testing.assert_array_equal(targets[[0, 2]], np.eye(4)[[0, 2]])
    nothing = sparse.csr_array((3, 2), dtype=np.float32)
    np.testing.assert_array_equal(soft_targets(nothing, delta=0.0, max_targets=0).toarray(), np.eye(2))


@pytest.mark.parametrize("make", [soft_targets, glas_targets])
@pytest.mark.parametrize(("delta", "most"), [(0.1, 0), (0.0, 20), (0.0, 0)])
def test_memory_at_the_peak_is_the_result_and_one_block_even_with_a_label_in_every_text(make, delta, most):
    num_texts, num_labels, block = 4000, 3000, 20_000
    columns = np.random.default_rng(0).integers(1, num_labels, (num_texts, 30))
    columns[:, 0] = 0
    entries = (np.ones(columns.size, dtype=np.float32), columns.ravel(), np.arange(0, columns.size + 1, 30))
    positives = Split.of(Texts.blank(num_texts), sparse.csr_array(entries, shape=(num_texts, num_labels))).positives
    tracemalloc.start()
    targets = make(positives, delta=delta, max_targets=most, block=block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    limit = 10 * targets.nnz + 24 * positives.nnz + 8 * num_texts + 20 * num_labels + 56 * block
    assert peak < limit
    ones = positives.astype(bool).astype(np.int32)
    product = (ones.T @ ones).nnz
    if delta or most:
        assert limit < 12 * product / 4  # the whole product alone takes several times as much
    else:
        assert targets.nnz == product
    assert targets.toarray()[5, 0] == pytest.approx(1 if make is soft_targets else 1 / (1 + np.exp(-0.5)), abs=0.01)


GRAPH = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]])


def walk(positives, *, seed=0, length=400, restart=0.8, max_targets=10, verbose=500):
    rng = np.random.default_rng(seed)
    settings = Augment(walk_length=length, walk_restart=restart, walk_max_labels=max_targets, walk_verbose=verbose)
    return walk_targets(settings, positives, rng)


def hop_chances(dense):
    """From each label to each: a text of the label, then a label of the text."""
    return (dense.T / dense.sum(axis=0)[:, None]) @ (dense / dense.sum(axis=1)[:, None])


@pytest.mark.parametrize("restart", [0.3, 1.0])
def test_a_long_walk_gives_the_expected_share_of_visits(restart):
    hop = hop_chances(GRAPH)
    reached, visits = hop, hop.copy()
    for _ in range(2000):
        reached = restart * hop + (1 - restart) * reached @ hop
        visits += reached
    expected = np.minimum(visits / np.diag(visits)[:, None], 1)
    found = walk(table(GRAPH), length=30_000, restart=restart)
    np.testing.assert_allclose(found.toarray(), np.where(np.eye(4), 1, expected), atol=0.06)
    assert_sound(found)


@pytest.mark.parametrize("restart", [0.0, 0.3, 1.0])
def test_visits_of_walks_of_two_hops_equal_their_expectation(restart):
    hop = hop_chances(GRAPH)
    visited = np.zeros((4, 4))
    for own in range(4):
        for first in range(4):
            for second in range(4):
                chance = hop[own, first] * (restart * hop[own, second] + (1 - restart) * hop[first, second])
                for label in {first, second} - {own}:
                    visited[own, label] += chance
    many = 4000  # the same graph side by side: as many walks of two hops from each label
    found = walk(sparse.csr_array(sparse.kron(np.eye(many), GRAPH)), length=2, restart=restart).tocoo()
    away = found.row != found.col
    counts = np.zeros((4, 4))
    np.add.at(counts, (found.row[away] % 4, found.col[away] % 4), 1)
    assert np.array_equal(found.row // 4, found.col // 4)
    assert np.all(found.data == 1)  # once here and once there, or twice there
    np.testing.assert_allclose(counts / many, visited, atol=0.03)


def test_walks_keep_few_labels_and_leave_verbose_ones_out(monkeypatch):
    positives = random_table(0, num_texts=60, num_labels=20)
    frequencies = positives.toarray().sum(axis=0)
    verbose = int(np.median(frequencies))
    found = walk(positives, max_targets=3, verbose=verbose)
    left_out = np.flatnonzero(frequencies > verbose)
    assert 0 < len(left_out) < 20
    dense = found.toarray()
    np.testing.assert_array_equal(dense[left_out], np.eye(20)[left_out])
    np.testing.assert_array_equal(dense[:, left_out], np.eye(20)[:, left_out])
    assert np.diff(found.indptr).max() == 3
    assert_sound(found)
    again = walk(positives, max_targets=3, verbose=verbose)
    other = walk(positives, seed=1, max_targets=3, verbose=verbose)
    np.testing.assert_array_equal(again.toarray(), dense)
    assert np.any(other.toarray() != dense)
    monkeypatch.setattr("unidex.augment.walks._BLOCK_HOPS", 1000)  # two labels at a time
    np.testing.assert_array_equal(walk(positives, max_targets=3, verbose=verbose).toarray(), dense)


def points_of(positives, seed=0, **settings):
    return label_points(positives, Augment(**{"method": "gandalf", **settings}), seed)


def test_methods_give_the_targets_of_their_modules():
    positives = random_table(1)
    found = {method: points_of(positives, method=method, delta=0.2, max_targets=2) for method in ("gandalf", "glas")}
    assert np.array_equal(
        found["gandalf"].targets.toarray(), soft_targets(positives, delta=0.2, max_targets=2).toarray()
    )
    assert np.array_equal(found["glas"].targets.toarray(), glas_targets(positives, delta=0.2, max_targets=2).toarray())
    assert np.array_equal(points_of(positives, method="one-hot").targets.toarray(), np.eye(12))
    walked = points_of(positives, method="random-walk", max_targets=4).targets
    assert np.diff(walked.indptr).max() == 4
    for points in found.values():
        assert points.texts.tolist() == list(range(30))
        assert points.labels.tolist() == list(range(12))


def test_no_method_is_all_texts_and_no_label():
    points = label_points(random_table(0), Augment(points="labels", label_share=0.5), seed=0)
    assert len(points.texts) == 30
    assert len(points.labels) == 0
    assert points.targets.shape == (0, 12)


def test_without_the_self_label_the_others_stay():
    positives = table(SMALL)
    points = points_of(positives, self_label=False)
    assert points.labels.tolist() == [0, 1]  # labels 2 and 3 stand alone, so nothing is left of them
    np.testing.assert_allclose(points.targets.toarray(), [[0, 2 / 3, 0, 0], [1, 0, 0, 0]], rtol=1e-6)
    many = random_table(2, density=0.5)
    assert np.diff(points_of(many, self_label=False, max_targets=3).targets.indptr).tolist() == [3] * 12
    with pytest.raises(ConfigError, match="needs a label with a target"):
        points_of(positives, method="one-hot", self_label=False, points="labels")


def test_points_of_labels_alone_and_a_uniform_part_of_both():
    positives = random_table(0)
    alone = points_of(positives, points="labels")
    assert len(alone.texts) == 0
    assert len(alone.labels) == 12
    whole = points_of(positives).targets.toarray()
    seen_texts, seen_labels = set(), set()
    for seed in range(40):
        part = points_of(positives, points="uniform", seed=seed)
        assert len(part.texts) + len(part.labels) == 30
        assert np.all(np.diff(part.texts) > 0)
        assert np.all(np.diff(part.labels) > 0)
        np.testing.assert_array_equal(part.targets.toarray(), whole[part.labels])
        seen_texts |= set(part.texts.tolist())
        seen_labels |= set(part.labels.tolist())
    assert len(seen_texts) == 30
    assert len(seen_labels) == 12
    again = points_of(positives, points="uniform", seed=39)
    assert again.texts.tolist() == part.texts.tolist()


def test_a_share_of_the_labels_is_random_or_from_the_tail():
    rng = np.random.default_rng(0)
    positives = table(rng.random((200, 40)) < np.linspace(0.01, 0.5, 40))
    bins = frequency_bins(np.bincount(positives.indices, minlength=40))
    tail = np.flatnonzero(bins == 4)
    few = [points_of(positives, label_share=0.25, pick="tail-first", seed=seed).labels for seed in range(20)]
    assert len(tail) > 10
    assert all(len(labels) == 10 and set(labels) <= set(tail) for labels in few)
    assert set(np.concatenate(few)) == set(tail)  # inside a bin any label
    more = points_of(positives, label_share=0.9, pick="tail-first").labels
    left = np.setdiff1d(np.arange(40), more)
    assert len(left) == 4
    assert bins[left].max() <= bins[more].min()
    random = points_of(positives, label_share=0.25).labels
    assert len(random) == 10
    assert not set(random) <= set(tail)
    np.testing.assert_array_equal(
        points_of(positives, label_share=0.25).targets.toarray(), points_of(positives).targets.toarray()[random]
    )


def shop(uids=True):
    """Titles and contents, graded relevance, filter pairs, a text that is called as a label point would be."""
    packer = Packer()
    packer.add_pairs(["red shoe", "straw hat", "red hat"], ["of leather", "", "of wool"])
    train = Split.of(
        Texts.packed(packer),
        table([[1, 0, 0.5, 0], [0, 2, 0, 0], [0, 1, 1, 0]]),
        sparse.csr_array(np.array([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=bool)),
        Texts.of(["A1", "label:S", "A3"]) if uids else None,
    )
    test = Split.of(Texts.of(["blue hat"]), table([[0, 1, 0, 0]]), uids=Texts.of(["B1"]) if uids else None)
    labels = Labels(Texts.of(["shoes", "hats", "red things", "gloves"]), Texts.of(["S", "H", "R", "G"]))
    return Dataset("shop", labels, train, test, Propensity(0.6, 2.6))


def test_an_augmented_data_set_is_the_old_one_and_label_texts():
    before = shop()
    after = methods.make(before, "gandalf", {}, seed=0).dataset
    assert_equal_splits(after.train.take(slice(0, 3)), before.train)
    assert_equal_splits(after.test, before.test)
    assert_equal_texts(after.labels.texts, before.labels.texts)
    assert after.propensity == before.propensity
    assert after.name == "shop-gandalf"
    points = after.train.take(slice(3, 7))
    assert list(points.texts) == ["shoes", "hats", "red things", "gloves"]
    assert list(points.uids) == ["label::S", "label::H", "label::R", "label::G"]
    assert points.filter_pairs.nnz == 0
    assert points.positives.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0.5, 0], [0.5, 0.5, 1, 0], [0, 0, 0, 1]]
    assert methods.make(shop(uids=False), "gandalf", {}, seed=0).dataset.train.uids is None


def test_label_points_need_label_texts():
    without = Dataset("blank", Labels(Texts.blank(4)), shop().train)
    with pytest.raises(DataError, match=r"'blank' must have texts and label texts .* all label texts are empty"):
        methods.make(without, "gandalf", {}, seed=0)
    numbers = Split.of(Texts.blank(1), table([[1, 0, 0, 0]]), features=table([[1, 2]]))
    with pytest.raises(DataError, match="comes as sparse features"):
        methods.make(Dataset("numbers", shop().labels, numbers), "gandalf", {}, seed=0)


def test_dropped_words_are_about_the_share_and_never_all():
    texts = [" ".join(f"w{number}" for number in range(50))] * 100 + ["one", "", "  "]
    changed = words.drop_words(texts, 0.3, seed=0)
    kept = sum(len(text.split()) for text in changed[:100]) / 5000
    assert kept == pytest.approx(0.7, abs=0.03)
    for before, after in zip(texts, changed, strict=True):
        remaining = iter(before.split())
        assert all(word in remaining for word in after.split())  # in the same order
    assert changed[100:] == ["one", "", ""]
    assert changed == words.drop_words(texts, 0.3, seed=0) != words.drop_words(texts, 0.3, seed=1)
    assert all(len(text.split()) == 1 for text in words.drop_words(texts[:5], 1.0, seed=0))
    with pytest.raises(ConfigError, match="from 0 to 1, but is 2"):
        words.drop_words(texts, 2, seed=0)


def test_replaced_words_are_about_the_share_and_nothing_else_changes():
    synonyms = {"red": ["crimson", "scarlet"], "hat": ["cap"]}
    texts = ["Red hat, (red) shoe-box"] * 500
    changed = words.replace_words(texts, synonyms, 0.5, seed=0)
    assert all(re.fullmatch(r"(Red|crimson|scarlet) (hat|cap), \((red|crimson|scarlet)\) shoe-box", t) for t in changed)
    replaced = sum(len(re.findall("crimson|scarlet|cap", text)) for text in changed)
    assert replaced / 1500 == pytest.approx(0.5, abs=0.05)
    assert sum("crimson" in text for text in changed) > 100
    assert changed == words.replace_words(texts, synonyms, 0.5, seed=0) != words.replace_words(texts, synonyms, 0.5, 1)


def test_synonyms_come_from_a_file(tmp_path):
    file = tmp_path / "synonyms.txt"
    file.write_text("Red crimson\nhat cap bonnet\nred scarlet\n", encoding="utf-8")
    assert words.read_synonyms(file) == {"red": ["crimson", "scarlet"], "hat": ["cap", "bonnet"]}
    file.write_text("red crimson\nhat\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"synonyms.txt:2: a line must be a word and at least one synonym"):
        words.read_synonyms(file)


def test_synonyms_come_from_vectors():
    found = words.nearest_words(["infant infants baby", "the printer prints", "hat hats"] * 5 + ["babies"])
    assert "infants" in found["infant"]
    assert "hats" in found["hat"]
    assert all(word not in others for word, others in found.items())
    assert "babies" not in {word for others in found.values() for word in others}  # too rare


def test_copies_have_the_pairs_of_their_texts():
    before = shop()
    after = words.with_copies(before, "word-dropout", 0.5, "", seed=0)
    assert_equal_splits(after.train.take(slice(0, 3)), before.train)
    copies = after.train.take(slice(3, 6))
    for name in ("positives", "filter_pairs"):
        np.testing.assert_array_equal(getattr(copies, name).toarray(), getattr(before.train, name).toarray())
    assert list(copies.uids) == ["word-dropout:A1", "word-dropout:label:S", "word-dropout:A3"]
    assert [bool(content) for _, content in copies.texts.fields()] == [True, False, True]
    assert list(copies.texts) != list(before.train.texts)


@pytest.mark.parametrize("to", ["xc-raw", "pecos", "jsonl", "unidex"])
def test_what_the_verb_writes_is_read_back(to, tmp_path):
    before = topics(filters=True)
    write(before, tmp_path / "topics", "unidex")
    out = tmp_path / "out"
    done = json.loads(call("augment", tmp_path / "topics", "--out", out, "--to", to, "--json").stdout)
    after = read(out)
    points = label_points(before.train.positives, Augment(method="gandalf"), seed=0)
    assert done == {
        "folder": str(out),
        "format": to,
        "method": "gandalf",
        "num_texts": 240,
        "num_points": 24,
        "num_targets": points.targets.nnz,
        "mean_targets": round(points.targets.nnz / 24, 4),
    }
    assert list(after.train.texts) == [*before.train.texts, *before.labels.texts]
    rows = sparse.vstack([before.train.positives, points.targets]).toarray()
    np.testing.assert_allclose(after.train.positives.toarray(), rows, rtol=1e-6)
    assert list(after.test.texts) == list(before.test.texts)
    np.testing.assert_array_equal(after.test.positives.toarray(), before.test.positives.toarray())
    assert after.propensity == before.propensity
    np.testing.assert_array_equal(after.train.filter_pairs.toarray()[:240], before.train.filter_pairs.toarray())
    assert after.train.filter_pairs.toarray()[240:].sum() == 0


def test_the_verb_takes_every_setting_to_its_method(tmp_path):
    write(topics(), tmp_path / "topics", "unidex")

    def points(*flags):
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        done = call("augment", tmp_path / "topics", "--out", out, "--json", "--to", "unidex", *flags)
        return json.loads(done.stdout)

    assert points("--method", "one-hot")["num_targets"] == 24
    assert points("--max-targets", 1)["num_targets"] == 24
    assert points("--delta", 0.99)["num_targets"] == 24
    assert points("--delta", 0)["num_targets"] > points()["num_targets"]
    assert points("--label-share", 0.5, "--pick", "tail-first")["num_points"] == 12
    assert points("--points", "labels")["num_texts"] == 0
    uniform = points("--points", "uniform")
    assert uniform["num_texts"] + uniform["num_points"] == 240
    assert uniform["num_texts"] < 240
    assert points("--delta", 0, "--no-self-label")["num_targets"] == points("--delta", 0)["num_targets"] - 24
    assert points("--method", "glas", "--delta", 0.99)["num_targets"] == 24
    assert points("--method", "random-walk", "--walk-max-labels", 2)["mean_targets"] == 2
    assert points("--method", "random-walk", "--walk-verbose", 1)["mean_targets"] == 1
    short = points("--method", "random-walk", "--walk-length", 1, "--walk-restart", 0.5)
    assert 1 < short["mean_targets"] <= 2
    assert points("--method", "word-dropout", "--word-share", 0.5)["num_points"] == 240
    (tmp_path / "words.txt").write_text("w0a zebra\n", encoding="utf-8")
    done = points("--method", "synonyms", "--word-share", 1, "--synonyms", tmp_path / "words.txt")
    copies = list(read(done["folder"]).train.texts)[240:]
    assert not any("w0a" in text.split() for text in copies)
    assert any("zebra" in text.split() for text in copies)


def test_the_verb_says_in_one_line_what_it_wrote(tmp_path):
    write(topics(), tmp_path / "topics", "unidex")
    out = tmp_path / "out"
    done = call("augment", tmp_path / "topics", "--out", out, "--method", "one-hot")
    assert done.stdout == f"{out}: 240 texts and 24 label texts, 1.00 targets each\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--method", "magic"], "--method must be one of gandalf, .* but is 'magic'"),
        (["--method", "none"], "--method must be one of"),
        (["--method", "one-hot", "--delta", 0.2], "--delta has no effect with the method one-hot; leave it out"),
        (["--method", "one-hot", "--no-self-label"], "--no-self-label has no effect with the method one-hot"),
        (["--method", "synonyms", "--label-share", 0.5], "--label-share has no effect with the method synonyms"),
        (["--walk-max-labels", 3], "--walk-max-labels has no effect with the method gandalf"),
        (["--word-share", 0.3], "--word-share has no effect with the method gandalf"),
        (["--delta", 1], "augment.delta: Input should be less than 1, but is 1.0"),
        (["--pick", "head-first"], "augment.pick: Input should be 'random' or 'tail-first', but is 'head-first'"),
        (["--to", "csv"], "--to must be one of"),
        (["--method", "word-dropout", "--word-share", 7], "the share of words to change must be from 0 to 1"),
    ],
)
def test_invalid_settings_are_refused_and_nothing_is_written(flags, message, tmp_path):
    write(topics(num_train=20), tmp_path / "topics", "unidex")
    with pytest.raises((ConfigError, DataError), match=message):
        call("augment", tmp_path / "topics", "--out", tmp_path / "out", *flags)
    assert [entry.name for entry in tmp_path.iterdir()] == ["topics"]


def test_the_library_takes_a_data_set(tmp_path):
    done = augment(shop(), tmp_path / "out", "glas", {"max_targets": 1})
    assert done["num_targets"] == 4
    assert read(tmp_path / "out").num_labels == 4


def test_defaults_that_the_help_shows_are_those_of_the_settings():
    """The command line must start without reading config.py, so that the help repeats its defaults."""
    settings = {name.removeprefix("augment."): value for name, value, _ in config.settings_with_meaning()}
    settings |= {"word_share": methods.WORD_SHARE, "synonyms": words.WORDLLAMA}
    shown = {}
    for name, parameter in signature(verb.augment).parameters.items():
        option = get_args(parameter.annotation)[1]
        if parameter.default is None and isinstance(option.show_default, str):
            shown[name] = option.show_default
    assert len(shown) == 11
    assert shown == {name: str(settings[name]) for name in shown}
    assert set(methods.METHODS) == set(get_args(Augment.model_fields["method"].annotation)) - {"none", "auto"} | set(
        words.WORD_METHODS
    )


def test_the_examples_of_the_gandalf_page_run():
    document = DOCS / "how-to" / "gandalf.md"
    assert doctest.testfile(str(document), module_relative=False).failed == 0
    settings = {name.removeprefix("augment.") for name, _, _ in config.settings_with_meaning() if "augment." in name}
    page = document.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in settings if "mixup" not in name)
