"""The benchmark beside other systems: its table and picture from made-up rows, and how runs of others become rows."""

import json
import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import peers
import peers_report
import peers_runs
from peers_report import METRICS, Row, Task

SHOP = Task("Shop", "title", num_train=12_000, num_test=500, num_labels=3_000)


def row(system, values, **changes):
    made = Row(
        system=system,
        ours=False,
        train_cpu_s=40.0,
        features_cpu_s=2.5,
        predict_cpu_ms=0.1,
        features_cpu_ms=0.04,
        peak_mb=1500.4,
        model_mb=16.2,
        metrics=dict(zip(METRICS, values, strict=True)),
    )
    return replace(made, **changes)


def ours(values, **changes):
    own = {
        "ours": True,
        "features_cpu_s": None,
        "features_cpu_ms": None,
        "single_ms": {"median": 0.8, "p99": 2.25, "cpu": 0.9},
    }
    return row("unidex auto", values, **own | changes)


def test_table_shows_every_row_and_the_best_of_each_metric_in_bold():
    text = peers_report.table(
        SHOP, [row("PECOS", [50, 40, 30, 20.004, 22, 24]), ours([51, 39, 31, 20.001, 25, 23], train_cpu_s=9.96)]
    )
    heading, _, columns, rule, first, second, _, single = text.rstrip("\n").split("\n")
    assert heading == "**Shop, title**: 12,000 train texts, 3,000 labels, 500 test texts"
    # 20.004 and 20.001 are shown as the same number, so that both are the best.
    assert first == (
        "| PECOS | 40 | 2.5 | 0.100 | 0.040 | 1,500 | 16 | 50.00 | **40.00** | 30.00 | **20.00** | 22.00 | **24.00** |"
    )
    assert second == (
        "| unidex auto | 10.0 | included | 0.100 | included | 1,500 | 16 "
        "| **51.00** | 39.00 | **31.00** | **20.00** | **25.00** | 23.00 |"
    )
    assert columns.count("|") == rule.count("|") == first.count("|") == second.count("|")
    assert single == (
        "unidex auto, one text at a time: 0.80 ms in the median and 2.25 ms at the 99th percentile, "
        "0.90 CPU ms on average."
    )


def test_best_is_by_number_not_by_letter():
    text = peers_report.table(SHOP, [row("a", [9.5] * 6), row("b", [10.5] * 6)])
    assert text.count("**10.50**") == 2 * 6  # the peer's row and that of the best peer
    assert "**9.50**" not in text


def test_best_peer_has_the_highest_of_each_metric_over_both_feature_sets():
    rows = [
        row("PECOS", [50, 40, 30, 20, 22, 24]),
        row("PECOS, with characters", [49, 41, 29, 21, 21, 25]),
        ours([60] * 6),
    ]
    *_, best, _, _ = peers_report.table(SHOP, rows).rstrip("\n").split("\n")
    assert best == "| best peer |  |  |  |  |  |  | 50.00 | 41.00 | 30.00 | 21.00 | 22.00 | 25.00 |"


def test_every_peer_of_tfidf_has_a_twin_with_characters():
    assert {name for name in peers_runs.PEERS if name.endswith("+chars")} == {
        f"{name}+chars" for name, peer in peers_runs.PEERS.items() if peer.features == "tfidf"
    }
    assert "hs+chars" not in peers_runs.PEERS
    assert len({peer.title for peer in peers_runs.PEERS.values()}) == len(peers_runs.PEERS)


def test_cpu_seconds_to_a_model_include_the_features_of_peers():
    assert row("PECOS", [1] * 6).all_cpu_s == 42.5
    assert ours([1] * 6).all_cpu_s == 40.0


@pytest.mark.parametrize(("num_tasks", "num_panels"), [(1, 2), (5, 10)])
def test_picture_has_two_panels_a_task_and_every_system_in_its_legend(num_tasks, num_panels, tmp_path, monkeypatch):
    import matplotlib

    # Text as text, to be read here.
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    results = []
    for number in range(num_tasks):
        rows = [row("PECOS", [50] * 6), row("Parabel", [51] * 6, train_cpu_s=200.0), ours([55 + number] * 6)]
        results.append((replace(SHOP, name=f"Shop {number}"), rows))
    # A system that was not run everywhere, and a task without any row.
    results[-1][1].append(row("Bonsai", [49] * 6))
    results.append((replace(SHOP, name="Empty"), []))
    file = tmp_path / "picture.svg"
    peers_report.draw(results, file)
    svg = file.read_text()
    ElementTree.fromstring(svg)
    assert len(re.findall(r'<g id="axes_\d+">', svg)) == num_panels
    texts = re.findall(r"<text[^>]*>([^<]+)</text>|<tspan[^>]*>([^<]+)</tspan>", svg)
    shown = [first or second for first, second in texts]
    for name in ("PECOS", "Parabel", "Bonsai", "unidex auto", "best peer", "CPU seconds from texts to a model"):
        assert shown.count(name) == 1
    assert all(any(f"Shop {number}" in text for text in shown) for number in range(num_tasks))
    assert not any("Empty" in text for text in shown)
    # White ground: the ink must not stand on a dark page.
    assert re.search(r'<g id="patch_1">\s*<path[^>]*style="fill: #ffffff', svg)


def test_picture_of_ours_alone_has_no_best_peer(tmp_path, monkeypatch):
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    file = tmp_path / "picture.svg"
    peers_report.draw([(SHOP, [ours([55] * 6)])], file)
    assert "unidex auto" in file.read_text()
    assert "best peer" not in file.read_text()


def test_picture_needs_rows(tmp_path):
    with pytest.raises(ValueError, match="there must be rows to draw"):
        peers_report.draw([(SHOP, [])], tmp_path / "picture.svg")


def test_a_record_of_a_peer_becomes_a_row(tmp_path):
    file = tmp_path / "omikuji-parabel.json"
    record = {
        "name": "omikuji-parabel",
        "train_s": 8.1,
        "train_cpu_s": 14.2,
        "pred_s_per_1000": 1.3,
        "pred_cpu_s_per_1000": 1.19,
        "peak_rss_mb": 227,
        "model_mb": 68.4,
        "note": "",
    }
    file.write_text(json.dumps(record))
    scores = {"P@1": 56.2, "PSP@1": 22.2, "num_texts": 500, "bins": [], "filter_pairs": 3}
    features = {"train_cpu_s": 3.0, "test_cpu_s": 0.25, "whole_process_cpu_s": 9.0}
    found = peers_runs.peer_row("Omikuji Parabel", peers_runs.read_record(file), features, 500, scores)
    assert found == Row(
        system="Omikuji Parabel",
        ours=False,
        train_cpu_s=14.2,
        features_cpu_s=3.0,
        predict_cpu_ms=1.19,
        features_cpu_ms=0.5,
        peak_mb=227,
        model_mb=68.4,
        metrics={"P@1": 56.2, "PSP@1": 22.2},
    )
    # As it is kept and read again.
    assert Row(**json.loads(json.dumps(found.as_dict()))) == found
    own_features = peers_runs.peer_row("fastText hs", record, None, 500, scores)
    assert own_features.features_cpu_s is None
    assert own_features.features_cpu_ms is None


def test_an_incomplete_record_of_a_peer_is_named(tmp_path):
    file = tmp_path / "pecos.json"
    file.write_text('{"train_cpu_s": 2.0, "pred_cpu_s_per_1000": 0.1, "model_mb": null}')
    with pytest.raises(peers_runs.RunError, match=r"pecos.json: peak_rss_mb, model_mb must be numbers"):
        peers_runs.read_record(file)


def test_a_process_is_measured_and_its_failure_reported(tmp_path):
    work = "import sys; sys.stdout.write('done'); x = bytearray(200_000_000); x[::4096] = b'x' * len(x[::4096])"
    used = peers_runs.measured([sys.executable, "-c", work], tmp_path / "work", {})
    assert used.output == "done"
    assert used.peak_mb > 190
    assert 0 < used.cpu_s < 60
    bad = "import os, sys; sys.exit('no such ' + os.environ['WHAT'])"
    with pytest.raises(peers_runs.RunError, match=r"ended with 1: no such tree \(.*bad\.log\)"):
        peers_runs.measured([sys.executable, "-c", bad], tmp_path / "bad", {"WHAT": "tree"})


RUNNER = """
import gzip, json, sys
from pathlib import Path
import numpy as np
data, out, mode = sys.argv[1:]
with gzip.open(Path(data, "trn.json.gz"), "rt") as lines:
    texts = [json.loads(line) for line in lines]
if any(text["content"] for text in texts) or mode != "hs":
    sys.exit(f"given {mode} and {texts}")
if Path("broken").exists():
    sys.exit("the tree fell")
with Path("calls").open("a") as calls:
    calls.write("x")
np.save(Path(out, "fasttext-hs.npy"), [[0, 1, -1], [2, -1, -1]])
record = {"train_cpu_s": 3.5, "pred_cpu_s_per_1000": 0.12, "peak_rss_mb": 300, "model_mb": 102.0}
Path(out, "fasttext-hs.json").write_text(json.dumps(record))
"""


def test_a_peer_is_run_on_the_wanted_fields_scored_with_filter_pairs_and_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop = tmp_path / "shop"
    shop.mkdir()
    texts = [{"uid": str(n), "title": f"red shoe {n}", "content": "long", "target_ind": [n % 3]} for n in range(6)]
    (shop / "trn.json").write_text("".join(json.dumps(text) + "\n" for text in texts))
    tests = [{"uid": "a", "title": "shoe", "target_ind": [1]}, {"uid": "b", "title": "hat", "target_ind": [1]}]
    (shop / "tst.json").write_text("".join(json.dumps(text) + "\n" for text in tests))
    (shop / "lbl.json").write_text("".join(json.dumps({"uid": name, "title": name}) + "\n" for name in "xyz"))
    # The first label of the first text does not count, so that its second is the best.
    (shop / "filter_labels_test.txt").write_text("0 0\n")
    python = tmp_path / "environments" / "fasttext-wheel" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "run_fasttext.py").write_text(RUNNER)

    bench = peers_runs.Bench("shop", "title", tmp_path / "keep", num_threads=1)
    assert bench.task == Task("shop", "title", num_train=6, num_test=2, num_labels=3)
    (tmp_path / "broken").touch()
    with pytest.raises(peers_runs.RunError, match="the tree fell"):
        bench.peer("hs", tmp_path / "environments", tmp_path)
    (tmp_path / "broken").unlink()
    found = bench.peer("hs", tmp_path / "environments", tmp_path)
    assert found.system == "fastText hs"
    assert (found.train_cpu_s, found.predict_cpu_ms, found.features_cpu_s) == (3.5, 0.12, None)
    assert found.metrics["P@1"] == pytest.approx(50.0)
    again = peers_runs.Bench("shop", "title", tmp_path / "keep", num_threads=1)
    assert again.peer("hs", tmp_path / "environments", tmp_path) == found
    assert (tmp_path / "calls").read_text() == "x"
    with pytest.raises(peers_runs.RunError, match=r"must be of other/shop, but was made from .*; give another --keep"):
        peers_runs.Bench("other/shop", "title", tmp_path / "keep", num_threads=1)


def test_a_data_set_that_is_not_there_is_told(tmp_path):
    missing = tmp_path / "missing"
    with pytest.raises(peers_runs.RunError, match="missing: a data set must be"):
        peers_runs.Bench(str(missing), "title", tmp_path / "keep", num_threads=1)
    assert [folder.name for folder in tmp_path.iterdir()] == ["keep"]


def test_missing_peers_are_named_before_anything_runs(tmp_path):
    assert peers.missing_peers(["unidex"], None, None) is None
    assert "--systems unidex" in peers.missing_peers(["pecos", "unidex"], tmp_path, None)
    assert "PECOS XR-Linear must be installed" in peers.missing_peers(["pecos"], tmp_path, tmp_path)
    python = tmp_path / "libpecos" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert "must hold run_pecos.py" in peers.missing_peers(["pecos"], tmp_path, tmp_path)
    (tmp_path / "run_pecos.py").touch()
    assert peers.missing_peers(["pecos"], tmp_path, tmp_path) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sets/shop", ("sets/shop", "title+content")),
        ("sets/shop:title", ("sets/shop", "title")),
        ("sets:old/shop", ("sets:old/shop", "title+content")),
        (":title", (":title", "title+content")),
    ],
)
def test_a_data_set_may_name_its_own_fields(given, expected):
    assert peers.source_and_text(given, "title+content") == expected


def test_tables_are_read_as_they_were_printed():
    rows = [row("a", [9.5] * 6), row("b, with characters", [10.25] * 6), ours([8.0] * 6)]
    text = peers_report.table(SHOP, rows)
    [(task, found)] = peers_report.read_tables(text)
    assert task == SHOP
    assert (
        peers_report.table(task, [replace(one, single_ms=rows[-1].single_ms) if one.ours else one for one in found])
        == text
    )


def test_an_empty_cell_is_no_number():
    text = peers_report.table(SHOP, [row("a", [9.5] * 6)]).replace("| 0.100 |", "| |")
    [(_, [found])] = peers_report.read_tables(text)
    assert found.predict_cpu_ms != found.predict_cpu_ms
    assert found.model_mb == 16
