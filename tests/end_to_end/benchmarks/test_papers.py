"""The papers' tables: every row is a recipe that can be read, a stopped table continues, and the page has the runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import papers
import papers_examples
import papers_report
import papers_synthetic
import papers_tables
from helpers.synthetic import topics
from papers_rows import Ordering, Row, Table
from papers_runs import RUNS, DataSet, Store, settings_of
from papers_tables import TABLES
from unidex.config.recipes import load, recipe_names
from unidex.data.formats import write

ROOT = Path(papers.__file__).resolve().parents[1]
QUICK = ["--set", "encoder.dim=16", "--set", "train.epochs=2", "--set", "features.min_df=1"]


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_a_recipe_that_can_be_read_and_every_ordering_names_rows(name):
    table = TABLES[name]
    rows = {row.name: row for row in table.rows}
    assert len(rows) == len(table.rows)
    for row in table.rows:
        plain = Row(row.name, row.recipe, row.settings)
        settings = [setting for setting in settings_of(plain, DataSet("hpo")) if not setting.startswith("copies=")]
        config = load(row.recipe, settings)
        assert config.train.epochs <= 45
        assert len(row.paper) <= len(table.paper_columns)
        assert row.mode != "both" or (config.heads.dual and config.heads.classifier)
    for ordering in table.orderings:
        assert {ordering.ahead, ordering.behind} <= rows.keys()
        assert ordering.metric in (*table.columns, *table.facts)


def test_every_system_of_the_papers_has_a_row():
    rows = {row.recipe for table in TABLES.values() for row in table.rows}
    assert rows == set(recipe_names()) - {"auto", "static"}


def runs(*values):
    return [{"test": {"": {"P@1": value}}} for value in values]


@pytest.mark.parametrize(
    ("ahead", "behind", "wanted"),
    [
        ((3.0, 3.2, 3.1), (1.0, 1.2, 1.1), "+2.00 ± 0.16: holds"),
        ((1.0, 1.2, 1.1), (3.0, 3.2, 3.1), "-2.00 ± 0.16: does not hold"),
        ((1.0, 3.0, 2.0), (1.2, 2.6, 1.9), "+0.10 ± 1.41: within noise"),
        ((3.0, 3.2), (1.0, 1.2), "+2.00: 2 seeds, not judged"),
        ((3.0,), (1.0, 1.2), "+1.90: 1 seed, not judged"),
        ((), (1.0,), "not run"),
    ],
)
def test_an_ordering_is_judged_by_two_standard_errors_over_three_seeds(ahead, behind, wanted):
    ordering = Ordering("claim", "P@1", "a", "b")
    assert papers_report.verdict(ordering, Row("a", "x"), Row("b", "x"), runs(*ahead), runs(*behind)) == wanted


def test_an_ordering_compares_the_seeds_that_both_rows_have():
    table = Table("t", "", (Row("a", "x"), Row("b", "x")), ("P@1",), (Ordering("claim", "P@1", "a", "b"),))
    first, second = (
        [run | {"seed": seed} for seed, run in enumerate(runs(*values))] for values in ((5.0,), (4.0, 9.0))
    )
    assert "+1.00: 1 seed, not judged" in papers_report.judged(table, {"s": {"a": first, "b": second}})


def table_of(data, out, *asked):
    command = [sys.executable, ROOT / "benchmarks" / "papers.py", "unidec-2.5", data, "--out", out, *QUICK, *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ", seed " in line]


def test_a_stopped_table_continues_with_what_is_missing_and_ends_with_the_same_figures(tmp_path):
    write(topics(num_train=48, num_test=12), tmp_path / "topics", "xc-raw")
    rows = ["--only", "with;without;without, dual head;random batches"]
    shown, trained = table_of(tmp_path / "topics", tmp_path / "out", *rows, "--seeds", "1")
    # Heads of one model are one run.
    assert len(trained) == 3
    lines = (tmp_path / "out" / RUNS).read_text().splitlines()
    # Killed while it wrote the second run.
    (tmp_path / "out" / RUNS).write_text(lines[0] + "\n" + lines[1][:40])
    again, trained = table_of(tmp_path / "topics", tmp_path / "out", *rows, "--seeds", "1")
    assert len(trained) == 2
    stored = Store(tmp_path / "out").runs.values()
    before = {json.dumps(run["settings"]): run["test"] for run in map(json.loads, lines)}
    assert {json.dumps(run["settings"]): run["test"] for run in stored} == before
    assert "| topics | without, dual head | 1 |" in again
    assert "1 seed, not judged" in again
    assert shown.count("\n") == again.count("\n")


def test_a_setting_that_a_row_repeats_makes_no_other_run(tmp_path):
    store, what = Store(tmp_path), {"set": "s", "recipe": "inceptionxml", "seed": 0}
    run = store.add(what | {"settings": ["train.epochs=8", "encoder.dim=128"]})
    assert store.get(**what, settings=["train.epochs=8", "encoder.dim=128", "train.epochs=8"]) == run


def test_label_texts_at_equal_steps_have_fewer_epochs(tmp_path):
    write(topics(num_train=48, num_test=12), tmp_path / "topics", "xc-raw")
    row = Row("x", "dpr", ("augment.method=gandalf", "train.epochs=9"), equal_steps=True)
    # 48 texts and 24 labels: two thirds of the epochs.
    assert settings_of(row, DataSet(str(tmp_path / "topics")))[-1] == "train.epochs=6"


def test_synthetic_experiments_are_stored_and_the_imbalance_is_as_the_paper_says(tmp_path):
    # An easy positive is pushed down by softmax, never by decoupled softmax, and ends with a lower margin.
    sizes = {"texts": 120, "labels": 60, "topics": 12, "steps": 80}
    losses = papers_synthetic.LOSSES
    softmax = papers_synthetic._trained(losses["softmax"], 5, 0, **sizes)
    decoupled = papers_synthetic._trained(losses["decoupled softmax"], 5, 0, **sizes)
    assert decoupled[1] > softmax[1]
    assert decoupled[2] == 0 < softmax[2]
    store = Store(tmp_path)
    table = papers_tables.run_experiment("dexml-gradients", store)
    assert Store(tmp_path).get(set="synthetic", recipe="dexml-gradients", settings=[], seed=0)["table"] == table


def test_an_easy_positive_silences_softmax_and_not_decoupled_softmax():
    rows = [line.split(" | ") for line in papers_synthetic.pushes(500).splitlines()[2:]]
    softmax, decoupled = ([float(cell.strip(" |")) for cell in row[1:]] for row in rows)
    assert min(softmax[0], decoupled[0]) > 0.99
    assert softmax[-1] < 0.01 < 0.49 < decoupled[-1]


def test_sizes_neighbours_and_predictions_of_a_data_set(tmp_path, monkeypatch):
    write(topics(num_train=48, num_test=12), tmp_path / "topics", "xc-raw")
    data = DataSet(str(tmp_path / "topics"))
    assert "| topics | 48 | 24 |" in papers_examples.sizes(data)
    graph = papers_examples.neighbours(data).splitlines()
    assert all(line.count("`") == 2 * (1 + papers_examples._NUM_NEIGHBOURS) for line in graph[2:])
    # No process of its own: a fork of one that has run torch's threads may wait forever.
    monkeypatch.setattr(papers_examples, "in_child", lambda work: work())
    monkeypatch.setattr(papers_examples, "_SYSTEMS", ("decaf",))
    monkeypatch.setattr(papers_examples, "_MAX_WORDS", 100)
    monkeypatch.setattr(papers_examples, "_NUM_SHOWN", 1)
    monkeypatch.setattr(papers_examples, "CPU", {"decaf": ("encoder.dim=8", "train.epochs=1", "features.min_df=1")})
    shown = papers_examples.predictions(data).splitlines()
    assert len(shown) == 3
    assert "| decaf |" in shown[2]
    store = Store(tmp_path)
    table = papers_tables.run_experiment("thesis-1.1", store, data)
    assert papers_report.rendered("thesis-1.1", (), Store(tmp_path)) == table


def test_the_page_has_what_the_stored_runs_give(tmp_path):
    page = tmp_path / "papers.md"
    page.write_text((ROOT / "docs" / "papers.md").read_text(encoding="utf-8"), encoding="utf-8")
    assert "<!-- papers: unidec-2.4 -->" in page.read_text(encoding="utf-8")
    assert not papers_report.write_page(page, Store(ROOT / "benchmarks" / "results"))


def test_a_part_of_a_page_is_rewritten_and_the_rest_stays(tmp_path):
    page, store = tmp_path / "page.md", Store(tmp_path)
    page.write_text("before\n<!-- papers: dexml-3 -->\nold\n<!-- end -->\nafter\n")
    assert papers_report.write_page(page, store)
    assert page.read_text() == "before\n<!-- papers: dexml-3 -->\n\nNot run yet.\n\n<!-- end -->\nafter\n"
    assert not papers_report.write_page(page, store)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["unidec-9", "hpo"], "TABLE must be one of"),
        (["dexml-3"], "a table needs DATA"),
        (["dexml-3", "hpo", "--only", "x"], "but has x"),
    ],
)
def test_unknown_tables_and_rows_are_refused(asked, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["papers.py", *asked])
    with pytest.raises(SystemExit) as ended:
        papers.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_table_of_one_head_has_no_other_mode():
    table = Table("t", "", (Row("a", "dpr", mode="dual"),))
    run = {"set": "s", "recipe": "dpr", "settings": [], "seed": 0, "steps": 1, "CPU s": 1.0}
    store = Store(Path("nowhere"))
    store.runs["x"] = run | {"test": {"": dict.fromkeys(table.columns, 5.0)}}
    assert "| s | a | 1 | 1 | 1 | 5.00 |" in papers_report.markdown(table, ["s"], store)
