"""The robustness table: how cells are made from a data set, and how unidex is compared with the best peer."""

import gzip
import json

import numpy as np
import pytest
from scipy import sparse

import peers_runs
import robustness
from peers_report import METRICS
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.formats import read
from unidex.data.texts import Texts
from unidex.verbs.score import score_predictions

NUM_TRAIN, NUM_TEST, NUM_LABELS = 60, 12, 8


def write(file, rows):
    with gzip.open(file, "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def shops(tmp_path):
    """A folder with one data set; text n has the labels n and n + 1, and label n + 3 is filtered."""
    shop = tmp_path / "sets" / "shop"
    shop.mkdir(parents=True)
    for split, prefix, num in (("trn", "train", NUM_TRAIN), ("tst", "test", NUM_TEST)):
        rows = [
            {
                "uid": f"{prefix} {n}",
                "title": f"{prefix} title {n}",
                "content": f"content {n}",
                "target_ind": [n % NUM_LABELS, (n + 1) % NUM_LABELS],
                "target_rel": [1.0, 0.5],
            }
            for n in range(num)
        ]
        write(shop / f"{split}.json.gz", rows)
        pairs = [f"{n} {(n + 3) % NUM_LABELS}\n" for n in range(num)]
        (shop / f"filter_labels_{prefix}.txt").write_text("".join(pairs))
    write(shop / "lbl.json.gz", [{"uid": f"label {n}", "title": f"name {n}"} for n in range(NUM_LABELS)])
    return shop.parent


def cell(shops, name, max_texts=None, max_test=None):
    return robustness.made(shops / "shop", name, shops.parent / "cells", max_texts, max_test)


@pytest.mark.parametrize(
    ("name", "max_texts", "num_train"),
    [("tenth", None, 6), ("hundredth", None, 1), ("duplicates", None, 78), ("all", 20, 20), ("tenth", 20, 2)],
)
def test_texts_of_a_cell_keep_their_labels_and_filter_pairs(shops, name, max_texts, num_train):
    made = read(str(cell(shops, name, max_texts)))
    assert len(made.train) == num_train
    assert len(made.test) == NUM_TEST
    numbers = [int(text.split()[2]) for text in made.train.texts]
    assert len(set(numbers)) == (60 if name == "duplicates" else num_train)
    for row, n in enumerate(numbers):
        labels = {n % NUM_LABELS, (n + 1) % NUM_LABELS}
        assert set(made.train.positives[[row]].indices.tolist()) == labels
        assert made.train.filter_pairs[[row]].indices.tolist() == [(n + 3) % NUM_LABELS]


def test_cells_have_the_same_of_the_drawn_test_texts(shops):
    cells = [read(str(cell(shops, name, max_test=5))) for name in ("all", "tenth", "single")]
    numbers = [int(text.split()[2]) for text in cells[0].test.texts]
    assert len(set(numbers)) == 5
    assert numbers != list(range(5))
    for made in cells:
        assert list(made.test.texts) == list(cells[0].test.texts)
        assert made.test.filter_pairs.indices.tolist() == [(n + 3) % NUM_LABELS for n in numbers]
    assert len(cells[0].train) == NUM_TRAIN


def test_one_label_per_text_in_train_and_test(shops):
    made = read(str(cell(shops, "single")))
    for split, num in ((made.train, NUM_TRAIN), (made.test, NUM_TEST)):
        assert np.diff(split.positives.indptr).tolist() == [1] * num
    firsts = sum(int(label) == n % NUM_LABELS for n, label in enumerate(made.train.positives.indices))
    assert 10 < firsts < 50  # drawn at random, not always the first


def test_ids_replace_label_texts_and_nothing_else(shops):
    made, before = read(str(cell(shops, "ids"))), read(str(shops / "shop"))
    assert len(set(made.labels.texts)) == NUM_LABELS
    assert not any("name" in text for text in made.labels.texts)
    assert list(made.train.texts) == list(before.train.texts)
    assert (made.train.positives != before.train.positives).nnz == 0


def test_a_cell_is_written_once(shops):
    assert cell(shops, "all") == shops / "shop"
    first = cell(shops, "tenth")
    written = (first / "trn.json.gz").stat().st_mtime_ns
    assert cell(shops, "tenth") == first
    assert (first / "trn.json.gz").stat().st_mtime_ns == written


def random_dataset(rng, num_test):
    def split(num):
        positives = sparse.csr_array((rng.random((num, 30)) < 0.1).astype(np.float32))
        pairs = sparse.csr_array((rng.random((num, 30)) < 0.05) & (positives.toarray() == 0))
        return Split.of(Texts.of([f"text {n}" for n in range(num)]), positives, pairs)

    labels = Labels(Texts.of([f"label {n}" for n in range(30)]))
    return Dataset("random", labels, split(200), split(num_test))


def test_entries_are_those_of_unidex_score_and_name_the_best_peer_of_each_metric(tmp_path):
    rng = np.random.default_rng(3)
    dataset = random_dataset(rng, 150)
    files = {}
    for system in ("pecos", "bonsai", "unidex"):
        files[system] = tmp_path / f"{system}.npy"
        np.save(files[system], np.stack([rng.permutation(30)[:10] for _ in range(150)]))
    scores = {system: score_predictions(file, dataset).metrics for system, file in files.items()}
    for metric, entry in zip(METRICS, robustness.compare(dataset, files), strict=True):
        assert entry.ours == pytest.approx(scores["unidex"][metric])
        assert entry.peer == pytest.approx(max(scores["pecos"][metric], scores["bonsai"][metric]))
        assert entry.error > 0
    alone = robustness.compare(dataset, {"unidex": files["unidex"]})
    assert [entry.difference for entry in alone] == [None] * 6
    same = robustness.compare(dataset, {"unidex": files["pecos"], "pecos": files["pecos"]})
    assert [(entry.difference, entry.error, entry.is_behind) for entry in same] == [(0.0, 0.0, False)] * 6


def test_standard_error_of_a_ratio_is_that_of_resampled_texts():
    rng = np.random.default_rng(0)
    possible = rng.uniform(1, 6, 400)
    first, second = possible * rng.random(400), possible * rng.random(400) * 0.8
    drawn = rng.integers(400, size=(4000, 400))
    resampled = (first - second)[drawn].sum(axis=1) / possible[drawn].sum(axis=1)
    assert robustness.paired_error((first, possible), (second, possible)) == pytest.approx(resampled.std(), rel=0.06)


def test_an_entry_is_bold_where_unidex_is_behind_by_more_than_two_standard_errors():
    assert robustness.Entry(50.0, 53.0, 1.4).shown() == "**50.0 / 53.0 (-3.0 ± 1.4)**"
    assert robustness.Entry(50.0, 53.0, 1.6).shown() == "50.0 / 53.0 (-3.0 ± 1.6)"
    assert robustness.Entry(53.0, 50.0, 1.0).shown() == "53.0 / 50.0 (+3.0 ± 1.0)"
    assert robustness.Entry(None, 50.0).shown() == "- / 50.0"


@pytest.fixture
def table(shops, tmp_path, monkeypatch, capsys):
    """Prints the table of some cells with two made-up peers, of which one fails; with the runs it started."""
    calls = []

    def peer(bench, name, environments, scripts):
        calls.append((bench.folder.name, name))
        if name == "bonsai":
            raise peers_runs.RunError("the tree fell")
        folder = bench.folder / name
        if not folder.exists():
            folder.mkdir()
            np.save(folder / "predictions.npy", np.tile(np.arange(5), (NUM_TEST, 1)))

    monkeypatch.setattr(peers_runs.Bench, "peer", peer)
    monkeypatch.setattr(robustness, "missing_peers", lambda *given: None)

    def run(cells):
        calls.clear()
        options = ["--sets", "shop", "--cells", cells, "--systems", "pecos,bonsai"]
        folders = ["--keep", str(tmp_path / "keep"), "--peers", str(tmp_path), "--peers-scripts", str(tmp_path)]
        monkeypatch.setattr("sys.argv", ["robustness.py", str(shops), *options, *folders])
        robustness.main()
        text = capsys.readouterr().out
        return text, [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| shop")], list(calls)

    return run


def test_a_stopped_table_continues_and_a_failed_peer_is_told_and_not_tried_again(table):
    first, cells, calls = table("tenth,single")
    assert cells == ["tenth", "single"]
    assert ("shop.tenth-title+content", "bonsai") in calls
    assert "0 of 0 comparisons" in first
    assert "- shop, tenth, bonsai: the tree fell" in first
    again, _, calls = table("tenth,single")
    assert again == first
    assert {name for _, name in calls} == {"pecos"}


def test_peers_see_no_label_texts_so_that_ids_are_their_runs_on_the_whole_set(table):
    _, cells, calls = table("ids,titles")
    assert cells == ["ids", "titles"]
    assert {folder for folder, _ in calls} == {"shop-title+content", "shop-title"}


def test_titles_need_contents(shops, table):
    rows = robustness.rows(shops / "shop" / "trn.json.gz")
    write(shops / "shop" / "trn.json.gz", [row | {"content": ""} for row in rows])
    _, cells, calls = table("all,titles")
    assert cells == ["all"]
    assert {folder for folder, _ in calls} == {"shop-title"}
