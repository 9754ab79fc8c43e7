"""Comparing recipes with real runs: it continues after a kill, a failure ends no other run, the page is whole."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

from helpers.synthetic import QUICK, topics
from helpers.waits import PATIENCE, wait_until
from page_picture import chromium_arguments, find_chromium
from unidex.cli.main import app
from unidex.config.recipes import load
from unidex.data import formats
from unidex.data.dataset import Dataset, Labels, Split, positives_of
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import ConfigError, DataError, ModelError, UnidexError
from unidex.model.label_set import LabelSet
from unidex.report.charts import curve_lines, draw_against
from unidex.report.html import as_html
from unidex.report.markdown import as_markdown
from unidex.report.point_names import place_names
from unidex.report.systems import spread_of, systems_of
from unidex.topk import TopK
from unidex.verbs.compare import compare, failed_error
from unidex.verbs.comparison import records, samples
from unidex.verbs.comparison import runs as running
from unidex.verbs.comparison.mistakes import mistakes_of
from unidex.verbs.comparison.plan import asked_runs
from unidex.verbs.comparison.records import fingerprint
from unidex.verbs.comparison.usage import noted_usage, usage_so_far
from unidex.verbs.evaluate import evaluate
from unidex.verbs.models import load_model
from unidex.verbs.report import models_in, report
from unidex.verbs.train import train

HOSTILE = '<img src=x onerror=alert(1)> & "quotes" ]]> </style><script>alert(1)</script> w0a\x00 | w1b'
RECIPES = ["unidec", "depsl"]
SETTINGS = [*QUICK, "train.checkpoint_every=20"]
# Long enough to be killed on the way.
LONGER = "train.epochs=25"
ASKED = [*SETTINGS, f"unidec:{LONGER}"]


def hostile_topics():
    """The problem of the other tests, with a label whose text is no harmless one, and filter pairs."""
    data = topics(num_labels=12, num_train=96, num_test=24, filters=True)
    texts = [HOSTILE, *list(data.labels.texts)[1:]]
    return Dataset("to<p>ics", Labels(Texts.of(texts), data.labels.uids), data.train, data.test)


def command(data, out, *more):
    settings = [word for setting in ASKED for word in ("--set", setting)]
    options = ["--recipes", ",".join(RECIPES), "--seeds", "2", *settings, "--out", str(out)]
    return [sys.executable, "-m", "unidex", "compare", str(data), *options, *more]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "topics"
    formats.write(hostile_topics(), folder, "unidex")
    return folder


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    """A comparison that was killed in its first run and continued: its folder, its table, and where it was killed."""
    out = tmp_path_factory.mktemp("compared")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command(data, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    model = out / "runs" / "unidec-none-0"
    checkpoints = model.with_name(f"{model.name}.training")
    wait_until(lambda: any(checkpoints.glob("*/checkpoint-*")) or process.poll() is not None, pause=0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    was_finished = records.record_file(model).exists()
    table = compare(data, RECIPES, out=out, num_seeds=2, settings=ASKED)
    return out, table, was_finished


def test_a_killed_comparison_is_continued(compared, data, tmp_path):
    out, table, was_finished = compared
    assert not was_finished
    assert [(system["name"], system["seeds"]) for system in table["systems"]] == [("unidec", [0, 1]), ("depsl", [0, 1])]
    assert table["failed"] == []
    killed, other = table["systems"][0]["runs"]
    assert (killed["training"]["num_starts"], other["training"]["num_starts"]) == (2, 1)
    # The orphan of the killed process has stopped: its log ends with that, and then the second process went on.
    log = (out / "work" / "unidec-none-0.log").read_text()
    assert re.search(r"stopped by a signal at step \d+|Resumed at step \d+", log)
    unbroken = train(data, "unidec", settings=[*SETTINGS, LONGER])
    assert unbroken.metrics["test"] == load_model(out / "runs" / "unidec-none-0").metrics["test"]


def test_finished_runs_are_not_repeated(compared, data):
    out, table, _ = compared
    files = [records.record_file(out / "runs" / f"{recipe}-none-{seed}") for recipe in RECIPES for seed in (0, 1)]
    before = [file.stat().st_mtime_ns for file in files]
    again = compare(data, RECIPES, out=out, num_seeds=2, settings=ASKED)
    assert again == table
    assert [file.stat().st_mtime_ns for file in files] == before


def test_numbers_of_the_table_are_those_of_evaluate(compared, data):
    out, table, _ = compared
    dataset = formats.read(data)
    for system in table["systems"]:
        scores = [evaluate(load_model(out / "runs" / run["name"]), dataset) for run in system["runs"]]
        for metric, value in system["metrics"].items():
            found = [score.metrics[metric] for score in scores]
            assert value["values"] == found
            assert value["mean"] == pytest.approx(np.mean(found))
            assert value["spread"] == pytest.approx(np.std(found, ddof=1))
        for at, group in enumerate(system["bins"]):
            assert group["contribution"]["values"] == [score.bins[at].contribution for score in scores]
        for run in system["runs"]:
            folder = out / "runs" / run["name"]
            network = load_model(folder).network
            tensors = [*network.state_dict().values(), *(table.weight for table in network.tables().values())]
            assert run["num_parameters"] == sum(tensor.numel() for tensor in tensors)
            assert run["model_bytes"] == sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            used = run["training"]
            assert used["cpu_seconds"] > 0
            assert used["wall_seconds"] > 0
            assert used["peak_memory_bytes"] > 50e6
    assert json.loads((out / "table.json").read_text()) == table


def test_the_markdown_has_the_same_numbers(compared):
    out, table, _ = compared
    text = (out / "table.md").read_text()
    assert text == as_markdown(table)
    row = next(line for line in text.splitlines() if line.startswith("| depsl "))
    p1 = table["systems"][1]["metrics"]["P@1"]
    assert f"{p1['mean']:.2f} ± {p1['spread']:.2f}" in row
    assert "**" in text
    assert "# to&lt;p>ics: 2 systems, 2 seeds" in text
    assert all(
        line.count("|") == line.count(r"\|") + 10 + 1 for line in text.splitlines() if line.startswith("| depsl 2")
    )


def parsed(page):
    """A page as a tree; it is XML too, so that nothing in it is left open."""
    return ElementTree.fromstring(page)


def test_the_report_page_is_complete_and_loads_nothing_from_other_hosts(compared):
    out, table, _ = compared
    page = (out / "report.html").read_text(encoding="utf-8")
    tree = parsed(page)
    names = {element.tag for element in tree.iter()}
    assert not names & {"script", "img", "link", "iframe", "object", "embed", "form"}
    for element in tree.iter():
        assert not [name for name in element.attrib if name.startswith("on") or name in ("src", "style", "srcset")]
        assert element.get("href", "#").startswith("#")
    assert "://" not in page
    assert not re.search(r"url\(|@import", page)
    ids = {element.get("id") for element in tree.iter() if element.get("id")}
    assert {"metrics", "frequency", "cost", "curves", "mistakes", "predictions", "runs"} <= ids
    assert {element.get("href")[1:] for element in tree.iter("a")} <= ids
    said = " ".join(tree.itertext())
    for system in table["systems"]:
        for metric in ("P@1", "PSP@5", "nDCG@3"):
            assert f"{system['metrics'][metric]['mean']:.2f}" in said
        for run in system["runs"]:
            assert run["command"] in said
    assert table["command"] in said
    # Metrics, a bar a system and kind of groups, costs, a curve a system.
    assert len(list(tree.iter("svg"))) == 2 + 2 * 2 + 2 + 2


def test_mistakes_are_those_of_the_predictions(compared, data):
    out, _, _ = compared
    dataset = formats.read(data)
    names, truths = dataset.labels, [set(row.indices.tolist()) for row in dataset.test.positives]
    record = records.read_record(out / "runs" / "depsl-none-0")
    found = record["mistakes"]
    model = load_model(out / "runs" / "depsl-none-0")
    ids = model.topk(list(dataset.test.texts), 12).without(dataset.test.filter_pairs).first(5).ids.tolist()
    lists = [[label for label in row if label >= 0] for row in ids]
    pairs = Counter(
        (names.texts[label], names.texts[row[0]])
        for row, truth in zip(lists, truths, strict=True)
        if row[0] not in truth
        for label in truth - set(row)
    )
    assert {(one["correct"], one["predicted"]): one["num_texts"] for one in found["confused"]}.items() <= pairs.items()
    assert len(found["confused"]) == min(10, len(pairs))
    asked, shown = set().union(*truths), {label for row in lists for label in row}
    assert found["never"]["num_asked"] == len(asked)
    assert found["never"]["num_labels"] == len(asked - shown)
    missed = [text for text, row, truth in zip(dataset.test.texts, lists, truths, strict=True) if not truth & set(row)]
    assert found["num_missed"] == len(missed)
    assert {one["text"] for one in found["worst"]} <= set(missed)
    page = parsed((out / "report.html").read_text(encoding="utf-8"))
    said = " ".join(" ".join(page.find(".//section[@id='mistakes']").itertext()).split())
    assert f"{len(missed)} texts have no right label. {len(asked - shown)} of {len(asked)} labels" in said


def test_mistakes_are_counted_and_the_surest_come_first():
    texts = Texts.of(["a", "b", "c", "d"])
    # Text 0: label 1 instead of 0; text 1: the same, surer; text 2: right in the second place; text 3: label 9 unknown.
    rows = [[0], [0, 3], [2], [3, 9]]
    split = Split.of(texts, positives_of(rows, 10))
    topk = TopK.rank([[1, 2], [1, 2], [1, 2], [3, 1]], [[0.5, 0.1], [0.9, 0.1], [0.8, 0.7], [0.6, 0.5]])
    labels = LabelSet([f"L {name}" for name in "pqrst"], list("pqrst"), np.zeros(5, np.int64), np.zeros(5, bool))
    found = mistakes_of(topk, split, labels)
    assert found["confused"] == [
        {"correct": "L p", "predicted": "L q", "num_texts": 2},
        {"correct": "L s", "predicted": "L q", "num_texts": 1},
    ]
    assert found["never"] == {"num_labels": 1, "num_asked": 3, "labels": [{"label": "L p", "num_texts": 2}]}
    assert [one["text"] for one in found["worst"]] == ["b", "a"]
    assert found["worst"][0] == {"text": "b", "correct": ["L p", "L s"], "predicted": ["L q", "L r"]}
    assert found["num_missed"] == 2


def test_user_texts_are_escaped_in_the_report(compared):
    out, _, _ = compared
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<img" not in page
    assert "\x00" not in page
    tree = parsed(page)
    assert tree.find("head/title").text.startswith("to<p>ics")
    assert [element.text for element in tree.iter("h1")] == [None]
    labels = [label.text for cell in tree.iter("li") for label in cell.iter("bdi")]
    assert any(label.startswith('<img src=x onerror=alert(1)> & "quotes"') for label in labels)


def test_the_page_fits_a_screen_a_phone_and_paper(compared):
    out, _, _ = compared
    if find_chromium() is None:
        pytest.skip("no Chromium: install one (Debian: apt-get install chromium) or name it in UNIDEX_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives Chromium: pip install playwright")
    complaints, requests = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=chromium_arguments())
        for width, is_mobile, scheme, media in (
            (1280, False, "light", "screen"),
            (360, True, "dark", "screen"),
            (703, False, "dark", "print"),  # A4 between its margins
        ):
            context = browser.new_context(
                viewport={"width": width, "height": 740}, is_mobile=is_mobile, color_scheme=scheme
            )
            page = context.new_page()
            page.on("console", lambda said: complaints.append(said.text))
            page.on("request", lambda request: requests.append(request.url))
            page.emulate_media(media=media)
            page.goto((out / "report.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            # Wide tables scroll inside their place, but paper does not scroll.
            wider = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
            assert media == "screen" or page.evaluate(wider) == 0
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            is_light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 600
            assert is_light == (scheme == "light" or media == "print")
            context.close()
        browser.close()
    assert complaints == []
    assert requests == 3 * [(out / "report.html").as_uri()]


def test_a_failed_run_does_not_stop_the_others(compared, data, tmp_path):
    out, _, _ = compared
    broken = tmp_path / "broken.toml"
    broken.write_text(load("unidec", [*SETTINGS, "train.lr_encoder=1e30", "train.lr_heads=1e30"]).as_toml())
    recipes = [str(broken), *RECIPES]
    own = [f"{name}:{setting}" for name in RECIPES for setting in SETTINGS] + [f"unidec:{LONGER}"]
    found = compare(data, recipes, out=out, num_seeds=1, settings=own)
    assert [system["name"] for system in found["systems"]] == RECIPES
    assert [system["seeds"] for system in found["systems"]] == [[0], [0]]
    (failed,) = found["failed"]
    assert failed["name"] == "broken-none-0"
    assert "the loss must be a finite number, but is not at step" in failed["error"]
    assert failed["error"] in str(failed_error(found))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "1 run failed" in page
    assert failed["error"][:40] in (out / "table.md").read_text()
    # One seed has no spread, and the page says so.
    assert found["systems"][0]["metrics"]["P@1"]["spread"] is None
    assert "One run each" in page
    parsed(page)


def with_worker(monkeypatch, tmp_path, script):
    """A place whose runs are a shell script, and a run."""
    program = tmp_path / "worker.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(running.sys, "executable", str(program))
    return running.Place(tmp_path / "out", "hpo", ReadOptions(), "0", "cpu"), asked_runs(["unidec"])


def test_an_interrupted_run_keeps_its_checkpoint(monkeypatch, tmp_path):
    # The script ends when its input does, as a run does with a checkpoint.
    place, runs = with_worker(monkeypatch, tmp_path, f"cat > /dev/null; touch {tmp_path}/kept; exit 130")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_watched", interrupted)
    with pytest.raises(running.ComparisonStoppedError, match="the same command continues") as stopped:
        running.run_all(place, runs)
    assert stopped.value.exit_code == 130
    assert (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; kill -9 $$", "ended by SIGKILL; the machine may be out of memory; its last log line: first"),
        ("echo 'unidex: no   good' >&2; exit 1", "no good"),
        ("exit 3", "it ended with exit code 3 and logged nothing"),
        ("exit 0", "it ended with exit code 0 and logged nothing"),
    ],
)
def test_the_error_tells_why_a_run_failed(monkeypatch, tmp_path, script, reason):
    place, runs = with_worker(monkeypatch, tmp_path, script)
    assert [failure.error for failure in running.run_all(place, runs)] == [reason]


def test_runs_with_other_settings_or_data_are_refused(compared, data, tmp_path):
    out, _, _ = compared
    with pytest.raises(
        UnidexError, match=r"depsl-none-0: the run .* train\.epochs is 6 there and 7 here; give another"
    ):
        compare(data, RECIPES, out=out, settings=[*ASKED, "depsl:train.epochs=7"])
    other = tmp_path / "other"
    formats.write(topics(num_labels=12, num_train=96, num_test=24, seed=1), other, "unidex")
    with pytest.raises(UnidexError, match=r"unidec-none-0: .* it is of other data"):
        compare(other, RECIPES, out=out, settings=ASKED)


def test_one_comparison_at_a_time(compared, data):
    from unidex.storage.locks import locked

    out, _, _ = compared
    program = (
        "import sys, time; from unidex.storage.locks import locked\n"
        "with locked(sys.argv[1]): print('held', flush=True); time.sleep(3600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(out / "work" / "compare")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UnidexError, match="only one comparison at a time"):
            compare(data, RECIPES, out=out, num_seeds=2, settings=ASKED)
    finally:
        holder.kill()
        holder.wait()
    with locked(out / "work" / "compare", wait_seconds=PATIENCE):
        pass


def test_a_report_lists_a_recipe_before_its_augmented_variants(tmp_path):
    for recipe in ("b-long", "a"):
        for augment in ("random-walk", "gandalf", "none"):
            model = tmp_path / "runs" / f"{recipe}-{augment}-0"
            model.mkdir(parents=True)
            records.record_file(model).write_text(json.dumps({"recipe": recipe, "augment": augment}))
    (tmp_path / "runs" / "unfinished-none-0").mkdir()
    methods = ("none", "gandalf", "random-walk")
    wanted = [f"{recipe}-{augment}-0" for recipe in ("a", "b-long") for augment in methods]
    assert [model.name for model in models_in(tmp_path)] == wanted


def test_report_of_finished_models(compared, data, tmp_path):
    out, table, _ = compared
    found = report([out], out=tmp_path / "all.html", data=str(data))
    rows = {system["name"]: system for system in found["systems"]}
    assert {name: rows[name]["metrics"] for name in RECIPES} == {s["name"]: s["metrics"] for s in table["systems"]}
    parsed((tmp_path / "all.html").read_text(encoding="utf-8"))
    # A model of unidex train is a row of its own, and what was not measured is left open.
    train(data, "depsl", settings=SETTINGS, out=tmp_path / "mine")
    texts = tmp_path / "texts.txt"
    test_text = formats.read(data).test.texts[0]
    texts.write_text(f"w0a w1b\n{test_text}\n")
    models = [tmp_path / "mine", out / "runs" / "depsl-none-0"]
    for where in (None, str(data)):
        two = report(models, out=tmp_path / "two.html", texts=texts, data=where)
        mine, run = two["systems"]
        assert (mine["name"], run["name"]) == ("mine", "depsl")
        assert mine["metrics"]["P@1"] == run["metrics"]["P@1"]
        assert mine["costs"]["peak_memory_bytes"]["mean"] is None
        tree = parsed((tmp_path / "two.html").read_text(encoding="utf-8"))
        articles = list(tree.iter("article"))
        assert [article.find("h3/bdi").text for article in articles] == ["w0a w1b", test_text]
        # Only what is a test text of the data set has known labels.
        assert [article.find("p") is not None for article in articles] == [False, where is not None]
    with pytest.raises(ModelError, match="each model folder must be named only once"):
        report([models[0], models[0]], out=tmp_path / "x.html")
    with pytest.raises(ModelError, match="is it a model"):
        report([tmp_path], out=tmp_path / "x.html")
    with pytest.raises(DataError, match="--text has no part in reading models without --data"):
        report(models, out=tmp_path / "x.html", reading=ReadOptions(text="title"))
    other = tmp_path / "other"
    formats.write(topics(num_labels=12, num_train=90, num_test=24), other, "unidex")
    with pytest.raises(ModelError, match="models in one report must be of one data set"):
        report([models[1]], out=tmp_path / "x.html", data=str(other))


def test_a_model_changed_after_its_measurement_has_no_seed(compared, tmp_path):
    out, _, _ = compared
    folder = tmp_path / "depsl-none-1"
    model = load_model(out / "runs" / "depsl-none-1")
    model.metrics["taught"] = {"pairs": 1}
    model.save(folder)
    records.record_file(folder).write_text(records.record_file(out / "runs" / "depsl-none-1").read_text())
    assert records.model_record(folder)["seed"] is None
    assert records.model_record(out / "runs" / "depsl-none-1")["seed"] == 1


def test_the_command_line_prints_the_table(compared, data, monkeypatch):
    out, table, _ = compared
    arguments = command(data, out)[3:]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(done.stdout) == table
    lines = CliRunner().invoke(app, arguments).stdout.splitlines()
    assert lines[1].split("\t")[:3] == ["system", "seeds", "P@1"]
    assert lines[-1] == f"page: {out / 'report.html'}"
    page = out / "again.html"
    done = CliRunner().invoke(app, ["report", str(out / "runs" / "depsl-none-0"), "--out", str(page), "--json"])
    assert [system["name"] for system in json.loads(done.stdout)["systems"]] == ["depsl"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UnidexError, match="without torchrun"):
        compare(data, RECIPES, out=out)


def test_the_planned_runs_are_those_asked_for():
    runs = asked_runs(["unidec"], ["none", "gandalf"], 2, ["train.epochs=2"])
    assert [(run.name, run.config.augment.method, run.seed) for run in runs] == [
        ("unidec-none-0", "none", 0),
        ("unidec-none-1", "none", 1),
        ("unidec-gandalf-0", "gandalf", 0),
        ("unidec-gandalf-1", "gandalf", 1),
    ]
    with pytest.raises(ConfigError, match="must name each only once, but names 'unidec' twice"):
        asked_runs(["unidec", "elsewhere/unidec.toml"])
    with pytest.raises(ConfigError, match="must name one of unidec, but names 'depsl'"):
        asked_runs(["unidec"], settings=["depsl:train.epochs=2"])
    with pytest.raises(ConfigError, match="--recipes must name at least one"):
        asked_runs([])
    with pytest.raises(ConfigError, match=r"augment\.method"):
        asked_runs(["unidec"], ["gandalv"])


def test_a_fingerprint_depends_on_the_content_only(tmp_path):
    data = hostile_topics()
    formats.write(data, tmp_path / "native", "unidex")
    assert fingerprint(formats.read(tmp_path / "native")) == fingerprint(data)
    changed = [
        data.with_test(Split.of(data.test.texts, data.test.positives)),
        data.with_test(data.test.take(range(len(data.test) - 1))),
        Dataset(data.name, Labels(data.labels.texts), data.train, data.test),
    ]
    assert len({fingerprint(one) for one in [data, *changed]}) == 4
    joined = [Texts.of(["ab", "c"]), Texts.of(["a", "bc"])]
    pairs = sparse.csr_array(np.ones((2, 1), dtype=np.float32))
    assert len({fingerprint(Dataset("x", Labels(Texts.of(["l"])), Split.of(texts, pairs))) for texts in joined}) == 2


def test_samples_are_drawn_by_seed_and_leave_filter_pairs_out(compared, data):
    out, _, _ = compared
    dataset = formats.read(data)
    drawn = samples.find_samples(dataset, None, 5)
    assert drawn == samples.find_samples(dataset, None, 5)
    assert drawn != samples.find_samples(dataset, None, 5, seed=1)
    assert all(sample.correct and sample.filtered for sample in drawn)
    for sample, labels in zip(drawn, samples.predicted_samples(out / "runs" / "depsl-none-0", drawn), strict=True):
        hidden = {dataset.labels.texts[int(uid[1:])] for uid in sample.filtered}
        assert not hidden & {label["text"] for label in labels}
        assert len(labels) == 5
        assert [label["is_correct"] for label in labels] == [
            label["text"] in sample.correct.values() for label in labels
        ]
    missing = samples.side_by_side([("gone", out / "gone")], drawn[:1])
    assert "must exist" in missing[0]["systems"][0]["error"]


def test_usage_of_several_processes_is_added(tmp_path):
    file = tmp_path / "used.json"
    with noted_usage(file):
        time.sleep(0.05)
    first = usage_so_far(file)
    with pytest.raises(ValueError, match="stopped"), noted_usage(file):
        raise ValueError("stopped")
    both = usage_so_far(file)
    assert first["wall_seconds"] >= 0.05
    assert first["cpu_seconds"] < first["wall_seconds"]
    assert (first["num_starts"], both["num_starts"]) == (1, 2)
    assert both["wall_seconds"] >= first["wall_seconds"]


def records_of(num_systems, values=(50.0,)):
    """Records such as runs leave, without any run."""
    groups = [
        {"name": str(n), "num_labels": 3, "mean_frequency": 2.0, "num_hits": 1, "contribution": 5.0} for n in (1, 2)
    ]
    return [
        {
            "name": f"system{number}-none-{seed}",
            "folder": f"runs/{number}-{seed}",
            "recipe": f"system{number}",
            "about": "about <it>",
            "augment": "none",
            "seed": seed,
            "settings": [],
            "config": {"number": number},
            "command": None,
            "test": {
                "P@1": value + number,
                "P@5": 20.0,
                "PSP@1": 30.0,
                "PSP@5": 31.0,
                "bins": groups,
                "classes": groups,
            },
            "training": {"wall_seconds": 1.0, "cpu_seconds": 2.0, "peak_memory_bytes": 1e9, "steps": None},
            "prediction": {},
            "num_parameters": 10,
            "model_bytes": 100,
            "versions": {},
            "machine": None,
        }
        for number in range(num_systems)
        for seed, value in enumerate(values)
    ]


def page_of(found, **more):
    table = {
        "title": "t",
        "data": {"name": "d"},
        "systems": systems_of(found),
        "failed": [],
        "command": "",
        "versions": {},
    }
    return parsed(as_html(table | more, {}, []))


def test_a_page_of_many_systems_of_few_and_of_none():
    tree = page_of(records_of(28, (50.0, 51.0, 49.0)))
    assert len({row.text for row in tree.iter("bdi")}) >= 28
    assert len(list(page_of(records_of(1)).iter("svg"))) == 2 + 2 + 2
    tree = page_of([], failed=[{"name": "a", "error": "e", "log": "l"}])
    assert "No run has come to its end." in "".join(tree.itertext())


def test_equal_values_are_all_best():
    found = records_of(3)
    for record in found:
        record["test"]["P@1"] = 50.001
    bold = [cell.find("b") is not None for cell in page_of(found).iter("td") if "50.00" in "".join(cell.itertext())]
    assert bold[:3] == [True, True, True]


def test_point_names_do_not_overlap():
    rng = np.random.default_rng(0)
    points = [(float(x), float(y)) for x, y in rng.uniform((60, 40), (380, 260), (12, 2))]
    places = place_names(points, ["a system"] * 12, 440, 300)
    centres = sorted((place.x - {"left": 0, "center": 28, "right": 55}[place.anchor], place.y) for place in places)
    overlapping = [
        (one, other)
        for at, one in enumerate(centres)
        for other in centres[at + 1 :]
        if abs(one[0] - other[0]) < 50 and abs(one[1] - other[1]) < 11
    ]
    assert overlapping == []


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [1.0, 1.0001], [99.9, 100.0], [1e-4, 3e-4], [1.0, 1e6]])
def test_axes_have_ticks(values):
    systems = [
        {"name": f"s{at}", "recipe": "r", "augment": "none", "metrics": {"P@1": spread_of([value])}}
        | {"costs": {"cpu_seconds": spread_of([value])}}
        for at, value in enumerate(values)
    ]
    for logarithmic in (False, True):
        if logarithmic and min(values) <= 0:
            continue
        svg = draw_against(systems, ("costs", "cpu_seconds"), ("metrics", "P@1"), logarithmic=logarithmic)
        numbers = [text.text for text in parsed(svg).iter("text") if re.fullmatch(r"[\d.,e+-]+", text.text)]
        assert 4 <= len(numbers) <= 20


def test_curves_continue_over_phases_and_trials_are_drawn_beside():
    said = [{"phase": "training", "epoch": n, "loss": 1 / n} for n in (1, 2)]
    said += [{"phase": "training", "epoch": 2, "validation": {"P@1": 40.0}}]
    said += [{"phase": "training-gandalf", "epoch": n, "loss": 2 / n} for n in (1, 2)]
    said += [{"phase": "decay", "epoch": 1, "loss": 0.1}]
    lines = curve_lines(said, "loss")
    assert [epoch for epoch, _ in lines["training-gandalf"]] == [1, 2]
    assert lines["decay"] == [(3, 0.1)]
    assert curve_lines(said, "P@1") == {"training": [(2, 40.0)]}


def test_a_picture_without_numbers_is_not_drawn():
    found = records_of(2)
    for record in found:
        record["training"]["cpu_seconds"] = None
    assert draw_against(systems_of(found), ("costs", "cpu_seconds"), ("metrics", "P@1"), logarithmic=True) == ""
