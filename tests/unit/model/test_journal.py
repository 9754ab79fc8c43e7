"""Labels that change after a model was saved: kept whole through kill -9, by many processes, and read by all."""

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import warm_start
from helpers.command import call
from helpers.strategies import strings
from helpers.synthetic import QUICK, topics
from unidex.errors import DataError, ModelError
from unidex.metrics.bins import CLASSES, frequency_classes
from unidex.model.journal import Journal, manifest_hash
from unidex.model.label_set import LabelRow, LabelSet
from unidex.model.model import Model
from unidex.storage.atomic import unfinished_folder
from unidex.storage.locks import LockedError, locked
from unidex.verbs.labels import list_labels
from unidex.verbs.train import train

TEXTS = list(topics().test.texts)
A = {"add": [{"uid": "a", "text": "w0a w60i"}]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "topics"
    kept = ["predict.knn=0.3", "predict.knn_texts=4", "predict.label_prior=0.05", "predict.fusion=0.3"]
    train(topics(num_test=0), "unidec", settings=[*QUICK, *kept, "train.epochs=2"], out=out)
    return out


@pytest.fixture
def folder(trained, tmp_path):
    Model.load(trained).save(tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture
def bare(tmp_path):
    """As much of a model as a journal asks for."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "manifest.json").write_text("{}")
    return tmp_path / "bare"


def unread(journal):
    """The unread changes, without their line numbers."""
    return [change for _, change in journal.unread()]


def alive(model):
    return {uid: model.labels.texts[model.labels.id_of(uid)] for uid in model.labels.uids if uid in model.labels}


def python(program, *words):
    return warm_start.start(*words, program=program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def assert_same_answers(model, other):
    assert model.labels.texts == other.labels.texts
    assert model.labels.uids == other.labels.uids
    assert model.labels.removed.tolist() == other.labels.removed.tolist()
    for mode in ("both", "dual", "classifier"):
        found, wanted = model.predict(TEXTS, 40, mode=mode), other.predict(TEXTS, 40, mode=mode)
        np.testing.assert_allclose(by_label(found), by_label(wanted), atol=1e-6)


def by_label(found):
    return np.take_along_axis(found.scores, np.argsort(found.ids, axis=1, kind="stable"), 1)


def test_each_reader_reads_an_appended_change_once(bare):
    first, second = Journal(bare), Journal(bare)
    assert unread(first) == []
    first.append(A)
    header, line = first.file.read_bytes().splitlines()
    assert (json.loads(header), json.loads(line)) == ({"model": manifest_hash(bare)}, A)
    assert unread(first) == unread(second) == [A]
    assert unread(first) == unread(second) == []
    second.append({"remove": ["a"]})
    second.append({"rename": {"uid": "b", "text": "B"}})
    assert unread(first) == unread(second) == [{"remove": ["a"]}, {"rename": {"uid": "b", "text": "B"}}]
    assert unread(Journal(bare)) == [A, {"remove": ["a"]}, {"rename": {"uid": "b", "text": "B"}}]


named = st.fixed_dictionaries({"uid": strings, "text": strings}).filter(
    lambda x: x["uid"].strip() and x["text"].strip()
)
one_change = st.one_of(
    st.fixed_dictionaries({"add": st.lists(named, max_size=3)}),
    st.fixed_dictionaries({"remove": st.lists(strings, max_size=3)}),
    st.fixed_dictionaries({"rename": named}),
)


@given(st.lists(one_change, max_size=5), st.data())
@settings(max_examples=40)
def test_a_cut_file_gives_its_whole_lines_and_new_changes_follow_them(tmp_path_factory, made, data):
    folder = tmp_path_factory.mktemp("cut")
    (folder / "manifest.json").write_text("{}")
    journal = Journal(folder)
    for change in made:
        journal.append(change)
    whole = journal.file.read_bytes() if made else b""
    cut = data.draw(st.integers(0, len(whole)))
    journal.file.write_bytes(whole[:cut])
    later = Journal(folder)
    num_whole = max(0, whole[:cut].count(b"\n") - 1)
    assert unread(later) == made[:num_whole]
    later.append(A)
    assert unread(later) == [A]
    assert unread(Journal(folder)) == [*made[:num_whole], A]


def test_an_unchanged_journal_is_not_opened(bare):
    journal = Journal(bare)
    journal.append(A)
    unread(journal)
    opened = []
    watching = [True]
    sys.addaudithook(lambda event, args: opened.append(args[0]) if watching[0] and event == "open" else None)
    for _ in range(3):
        assert unread(journal) == []
    watching[0] = False
    assert opened == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "invalid character|malformed"),
        ('{"add": [{"uid": "x"}]}', "missing required field `text`"),
        ('{"add": [{"uid": "x", "text": "y", "z": 1}]}', "unknown field `z`"),
        ('{"add": [], "remove": []}', "must be one of add, remove and rename, but is add, remove"),
        ("{}", "must be one of add, remove and rename, but is none"),
        ('{"rename": {"uid": "L1", "text": " "}}', "must have a text that is not blank"),
        ('{"remove": ["nobody"]}', "it has no label with uid 'nobody'"),
        ('{"rename": {"uid": "nobody", "text": "x"}}', "it has no label with uid 'nobody'"),
        ('{"add": [{"uid": "L3", "text": "y"}]}', "there is already L3"),
        ('{"add": [{"uid": "a", "text": "again"}]}', "there is already a"),
        ('{"add": ' + "[" * 100_000, "(?i)recursion|malformed|truncated"),
        ("\x00\x00\x00", "must be a change of labels"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_loaded(folder, line, message):
    journal = Journal(folder)
    journal.append(A)
    with journal.file.open("a") as file:
        file.write(line + "\n" + json.dumps({"remove": ["L0"]}) + "\n")
    with pytest.raises(ModelError, match=message) as caught:
        Model.load(folder)
    assert str(caught.value).startswith(f"{journal.file}:3: a line must be a change of labels that the model can take")
    assert str(caught.value).endswith("copy the model again")


def test_a_running_model_stops_at_a_wrong_line_and_stays_there(folder):
    model = Model.load(folder)
    model.change(A)
    with model.journal.file.open("a") as file:
        file.write('{"remove": ["nobody"]}\n')
    for _ in range(2):
        with pytest.raises(ModelError, match=r"changes\.jsonl:3: "):
            model.catch_up()
        with pytest.raises(ModelError, match=r"changes\.jsonl:3: "):
            model.change({"remove": ["a"]})
    assert "a" in model.labels


@pytest.mark.parametrize("harm", ["labels.jsonl", "index/manifest.json"])
def test_a_file_that_changed_is_named_with_a_journal_too(folder, harm):
    Model.load(folder).change(A)
    (folder / harm).write_bytes((folder / harm).read_bytes() + b" ")
    with pytest.raises(ModelError, match=rf"{harm}: the file changed since the model was saved"):
        Model.load(folder)


def test_changes_of_another_model_are_not_applied(folder):
    version = Model.load(folder).version
    Model.load(folder).change(A)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=rf"changes\.jsonl:1: the changes must be of the model .* names '{version}'"):
        Model.load(folder)
    (folder / "changes.jsonl").write_text("{}\n" + json.dumps(A) + "\n")
    with pytest.raises(ModelError, match=r"changes\.jsonl:1: .* but this line does not"):
        Model.load(folder)
    (folder / "changes.jsonl").unlink()
    assert len(Model.load(folder).labels) == 24


def test_a_replaced_folder_refuses_changes_of_the_old_model(folder):
    old = Model.load(folder)
    old.change(A)
    other = Model.load(folder)
    other.metrics["another"] = 1
    other.save(folder)
    assert other.version != old.version
    with pytest.raises(ModelError, match=rf"the one that was loaded \({old.version}\), but it was replaced; load"):
        old.change({"remove": ["L1"]})
    assert "L1" in old.labels
    assert not old.journal.is_current()
    other.change({"remove": ["a"]})
    assert old.catch_up() == []
    assert "a" not in Model.load(folder).labels


def test_a_reader_that_is_behind_cannot_append(bare):
    first, second = Journal(bare), Journal(bare)
    first.append(A)
    with pytest.raises(ModelError, match="all changes must be read before another is appended"):
        second.append(A)
    unread(second)
    second.append({"remove": ["a"]})
    second.file.write_bytes(second.file.read_bytes()[:-30])
    with pytest.raises(ModelError, match="bytes that were there are gone; load the folder again"):
        second.append(A)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"add": [{"uid": "x", "text": "\ud800"}]}, r"must be Unicode, but has half a character: '\\ud800'"),
        ({"add": [{"uid": "", "text": "x"}]}, "must have a uid that is not blank, but 'x' has none"),
        ({"add": [{"uid": "L1", "text": "x"}]}, "there is already L1"),
        ({"add": [{"uid": "x", "text": "1"}, {"uid": "x", "text": "2"}]}, "there is already x"),
        ({"remove": ["L1", "x"]}, "no label with uid 'x'"),
        ({"rename": {"uid": "L1", "text": "\n"}}, "must have a text that is not blank"),
        ({"drop": ["L1"]}, "unknown field `drop`"),
        ({"add": "L1"}, "Expected `array`"),
    ],
)
def test_an_invalid_change_is_not_written(folder, change, message):
    model = Model.load(folder)
    for do in (model.apply, model.change):
        with pytest.raises(DataError, match=message):
            do(change)
    assert alive(model) == alive(Model.load(folder))
    assert not model.journal.file.exists()


def test_loading_applies_the_journal_and_saving_folds_it_in(folder, tmp_path):
    live = Model.load(folder)
    assert live.change(A) == [24]
    assert live.change({"add": [{"uid": "b", "text": "w2c w9j"}, {"uid": "c", "text": "w4e"}]}) == [25, 26]
    assert live.change({"rename": {"uid": "L2", "text": "w1b w70s"}}) == [2]
    assert live.change({"remove": ["b", "L5", "b"]}) == [5, 25]
    # A removed label is gone: its uid is free.
    assert live.change({"add": [{"uid": "b", "text": "w2c w8i"}]}) == [27]
    assert live.change({"rename": {"uid": "a", "text": "w0a w61j"}}) == [24]
    loaded = Model.load(folder)
    assert_same_answers(loaded, live)
    assert len(alive(loaded)) == 24 - 1 + 3
    assert loaded.labels.id_of("b") == 27
    assert loaded.version == live.version == manifest_hash(folder)[:12]
    loaded.save(tmp_path / "copy")
    assert not (tmp_path / "copy" / "changes.jsonl").exists()
    assert_same_answers(Model.load(tmp_path / "copy"), live)
    loaded.save(folder)
    assert not (folder / "changes.jsonl").exists()
    assert loaded.version == manifest_hash(folder)[:12] != live.version
    assert_same_answers(Model.load(folder), live)
    assert loaded.change({"remove": ["c"]}) == [26]
    assert "c" not in Model.load(folder).labels


def test_a_model_that_was_not_loaded_changes_in_memory():
    model = train(topics(num_test=0), "unidec", settings=[*QUICK, "train.epochs=1"])
    assert model.version == ""
    assert model.change(A) == [24]
    assert model.catch_up() == []


def test_labels_read_together_are_those_that_were_added_one_by_one(folder):
    live = Model.load(folder)
    for number in range(30):
        live.change({"add": [{"uid": f"n{number}", "text": f"w{number}a w{number + 1}b"}]})
    assert_same_answers(Model.load(folder), live)


def test_saving_a_model_over_itself_keeps_what_others_have_added(folder):
    model, other = Model.load(folder), Model.load(folder)
    other.change(A)
    model.save(folder)
    assert "a" in Model.load(folder).labels
    assert "a" in model.labels


def test_a_model_can_be_read_while_it_is_replaced(folder):
    model = Model.load(folder)
    model.change(A)
    done = threading.Event()

    def save_again_and_again():
        for number in range(12):
            model.metrics["saved"] = number
            model.save(folder)
        done.set()

    writer = threading.Thread(target=save_again_and_again)
    writer.start()
    while not done.is_set():
        assert "a" in Model.load(folder).labels
    writer.join()
    assert sorted(path.name for path in folder.parent.iterdir()) == [".m.lock", "m"]


@pytest.mark.parametrize("kind", ["exact", "hnsw", "pq"])
def test_a_renamed_label_has_the_vector_of_its_text_and_keeps_its_classifier(trained, kind):
    source = Model.load(trained)
    config = source.config.model_copy(update={"predict": source.config.predict.model_copy(update={"index": kind})})
    prepared = source.network.encoder.prepare(source.labels.texts)
    model = Model.build(config, source.network, source.labels, prepared)
    before = {mode: by_label(model.predict(TEXTS, 24, mode=mode)) for mode in ("dual", "classifier", "both")}
    model.rename_label(3, model.labels.texts[8])
    after = {mode: by_label(model.predict(TEXTS, 24, mode=mode)) for mode in ("dual", "classifier", "both")}
    np.testing.assert_allclose(after["dual"][:, 3], before["dual"][:, 8], atol=1e-6)
    np.testing.assert_allclose(after["classifier"], before["classifier"], atol=1e-6)
    gained = after["dual"] - before["dual"]
    np.testing.assert_allclose(after["both"] - before["both"], gained, atol=1e-6)
    assert np.abs(np.delete(gained, 3, axis=1)).max() < 1e-6
    assert (model.labels.texts[3], model.labels.uids[3]) == (model.labels.texts[8], "L3")
    model.remove_labels([4])
    for label in (-1, 4, 24):
        with pytest.raises(DataError, match=f"a label to rename must name .*, but it has no label with id '?{label}"):
            model.rename_label(label, "x")


def test_a_classifier_alone_takes_new_names_and_no_new_labels(tmp_path):
    settings = [*QUICK, "train.epochs=1", "heads.dual=false"]
    train(topics(num_test=0), "unidec", settings=settings, out=tmp_path / "m")
    model = Model.load(tmp_path / "m")
    before = by_label(model.predict(TEXTS, 24))
    with pytest.raises(ModelError, match="labels can only be added to a model with a dual encoder"):
        model.change(A)
    model.change({"rename": {"uid": "L3", "text": "another"}})
    assert Model.load(tmp_path / "m").labels.texts[3] == "another"
    assert np.array_equal(by_label(model.predict(TEXTS, 24)), before)


# --- other processes, killed and at once ---

APPENDING = """
import sys
from unidex.model.journal import Journal
folder, name, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
journal = Journal(folder)
for number in range(most):
    uid = f"{name}-{number}"
    with journal.locked():
        journal.unread()
        journal.append({"add": [{"uid": uid, "text": f"text of {uid} " * (1 + number % 7)}]})
    print(uid, flush=True)
"""
CHANGING = """
import sys
from unidex.model.model import Model
model = Model.load(sys.argv[1])
for number in range(10_000):
    model.change({"add": [{"uid": f"model-{number}", "text": f"text of model-{number} "}]})
    print(f"model-{number}", flush=True)
"""


def acknowledged_before_killed(process, seconds):
    """What a process has printed when it was killed, some time after its first line."""
    first = process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    # Not communicate, which would miss the lines that readline has taken from the pipe already.
    rest = process.stdout.read()
    assert process.wait() == -9, process.stderr.read()
    # The last line may be cut as well: then it was not acknowledged.
    return [line for line in (first + rest).split("\n")[:-1] if line]


def test_acknowledged_changes_survive_kill_9_and_none_is_partial(folder):
    rng = random.Random(0)
    acknowledged = []
    for turn in range(6):
        process = python(APPENDING, folder, f"t{turn}", 100_000)
        acknowledged += acknowledged_before_killed(process, rng.uniform(0, 0.04))
    acknowledged += acknowledged_before_killed(python(CHANGING, folder), 0.1)
    model = Model.load(folder)
    found = alive(model)
    assert len(acknowledged) >= 7
    assert set(acknowledged) <= found.keys()
    # A change may be on the disk whose acknowledgement was still under way: one a process.
    assert len(found) <= 24 + len(acknowledged) + 7
    for uid in found.keys() - {f"L{label}" for label in range(24)}:
        text = f"text of {uid} "
        assert found[uid].removeprefix(text) in [text * times for times in range(7)]
    # The order of each process is kept.
    assert [uid for uid in model.labels.uids if uid in set(acknowledged)] == acknowledged


def test_a_line_torn_by_kill_9_is_dropped(folder):
    model = Model.load(folder)
    model.change(A)
    # What is left when a process is killed inside of write.
    with model.journal.file.open("ab") as file:
        file.write(b'{"add":[{"uid":"torn","text":"to')
    loaded = Model.load(folder)
    assert "torn" not in loaded.labels
    assert loaded.change({"remove": ["a"]}) == [24]
    assert model.catch_up() == [24]
    assert unread(Journal(folder)) == [A, {"remove": ["a"]}]


def test_two_processes_at_once_lose_nothing(folder):
    both = [python(APPENDING, folder, name, 60) for name in ("p", "q")]
    lines = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert lines == [[f"{name}-{number}" for number in range(60)] for name in ("p", "q")]
    model = Model.load(folder)
    assert set(model.labels.uids[24:]) == set(lines[0] + lines[1])
    for own in lines:
        assert [uid for uid in model.labels.uids if uid in own] == own


def test_two_models_at_once_give_a_label_the_same_id(folder):
    first, second = Model.load(folder), Model.load(folder)
    assert first.change(A) == [24]
    assert second.change({"add": [{"uid": "b", "text": "x"}]}) == [25]
    assert first.change({"add": [{"uid": "c", "text": "y"}]}) == [26]
    assert second.catch_up() == [26]
    with pytest.raises(DataError, match="there is already c"):
        second.change({"add": [{"uid": "c", "text": "z"}]})
    assert_same_answers(first, second)


FULL = """
import resource, sys
from unidex.model.journal import Journal
from unidex.errors import ModelError
journal = Journal(sys.argv[1])
journal.append({"remove": ["x"]})
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
try:
    journal.append({"remove": ["y" * 1000]})
except ModelError as error:
    print(error)
journal.append({"remove": ["z"]})
"""


def test_a_change_that_the_disk_refuses_is_not_there(bare):
    done = python(FULL, bare)
    said, errors = done.communicate()
    assert (done.returncode, errors) == (0, "")
    assert said == (
        f"{bare / 'changes.jsonl'}: a change must be on the disk before it counts, but cannot be written "
        "(File too large); nothing was changed\n"
    )
    assert unread(Journal(bare)) == [{"remove": ["x"]}, {"remove": ["z"]}]


HOLDING = """
import sys, time
from pathlib import Path
from unidex.storage.atomic import unfinished_folder
from unidex.storage.locks import locked
with unfinished_folder(Path(sys.argv[1])) as path, locked(sys.argv[1]):
    (path / "half").write_text("x")
    print(path, flush=True)
    time.sleep(3600)
"""


def test_a_lock_is_waited_for_and_freed_by_kill_9_and_leftovers_go_with_the_next_save(folder):
    model = Model.load(folder)
    with locked(folder), locked(folder), locked(folder.parent / "." / folder.name):
        pass
    holder = python(HOLDING, folder)
    unfinished = Path(holder.stdout.readline().strip())
    with (
        pytest.raises(LockedError, match=r"m: only one process at a time .* held the lock for 0\.05 s"),
        locked(folder, wait_seconds=0.05),
    ):
        pass
    impatient = Journal(folder, wait_seconds=0.05)
    with pytest.raises(LockedError):
        impatient.append(A)
    # What a living process writes stays.
    with unfinished_folder(folder):
        assert unfinished.exists()
    holder.kill()
    holder.communicate()
    assert unfinished.exists()
    others = [folder.parent / name for name in (".m-other", ".m-12345678", ".m-x-12345678.unfinished")]
    for other in others:
        other.mkdir()
    model.save(folder)
    assert not unfinished.exists()
    names = sorted(path.name for path in folder.parent.iterdir())
    assert names == sorted([".m.lock", "m", *(other.name for other in others)])


def test_threads_of_one_process_take_turns(bare):
    inside, most = [0], [0]

    def work():
        for _ in range(20):
            with locked(bare):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                inside[0] -= 1

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most == [1]
    refused = []

    def come_late():
        with pytest.raises(LockedError), locked(bare, wait_seconds=0.05):
            pass
        refused.append(True)

    with locked(bare):
        late = threading.Thread(target=come_late)
        late.start()
        late.join()
    assert refused == [True]


def test_leftovers_of_an_unfinished_data_set_are_removed_by_the_next_write(tmp_path):
    from unidex.data import formats

    holder = python(HOLDING, tmp_path / "data")
    holder.stdout.readline()
    holder.kill()
    holder.communicate()
    formats.write(topics(num_train=4, num_test=0), tmp_path / "data", "jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".data.lock", "data"]


# --- the label set ---

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True)),
        st.tuples(st.just("remove"), st.sampled_from("abcdefgh")),
        st.tuples(st.just("rename"), st.sampled_from("abcdefgh"), st.sampled_from(["Zoo", "apple", "App", "ß"])),
        st.tuples(st.just("look"), st.sampled_from(["", "app", "SS", "b"])),
    ),
    max_size=12,
)


@given(steps, st.sampled_from(["frequency", "text", "id"]), st.sampled_from([None, *CLASSES]))
def test_a_label_set_behaves_like_a_plain_list(made, order, frequency):
    counts = [3, 200, 50]
    labels = LabelSet(["Hat", "apple", "Shoe"], ["a", "b", "c"], np.array(counts), np.zeros(3, dtype=bool))
    rows = [["a", "Hat", 3, False], ["b", "apple", 200, False], ["c", "Shoe", 50, False]]

    def known():
        return {uid: number for number, (uid, _, _, gone) in enumerate(rows) if not gone}

    def assert_chosen(search):
        kept = [n for n in known().values() if search.casefold() in rows[n][1].casefold() or rows[n][0] == search]
        kept = [n for n in kept if frequency in (None, CLASSES[frequency_classes(np.array([rows[n][2]]))[0]])]
        key = {"frequency": lambda n: (-rows[n][2], n), "text": lambda n: (rows[n][1].casefold(), n), "id": lambda n: n}
        assert labels.select(search=search, order=order, frequency=frequency).tolist() == sorted(kept, key=key[order])

    for step, *what in made:
        if step == "add":
            uids = [uid for uid in what[0] if uid not in known()]
            labels = labels.with_labels([f"Text {uid}" for uid in uids], uids)
            rows += [[uid, f"Text {uid}", 0, False] for uid in uids]
        elif step == "remove" and what[0] in known():
            number = known()[what[0]]
            labels = labels.without([number])
            rows[number][3] = True
        elif step == "rename" and what[0] in known():
            number = known()[what[0]]
            labels = labels.with_text(number, what[1])
            rows[number][1] = what[1]
        elif step == "look":
            assert_chosen(what[0])
    assert len(labels) == len(rows)
    found = zip(labels.uids, labels.texts, labels.frequencies.tolist(), labels.removed.tolist(), strict=True)
    assert [list(row) for row in found] == rows
    assert {uid: labels.id_of(uid) for uid in "abcdefgh" if uid in labels} == known()
    assert [labels.frequency_class(n) for n in range(len(rows))] == [
        CLASSES[number] for number in frequency_classes(np.array([row[2] for row in rows]))
    ]
    assert_chosen("")
    assert_chosen("app")


def test_a_label_set_is_changed_by_its_methods_alone():
    counts = np.array([1, 2])
    labels = LabelSet(["x", "y"], ["x", "y"], counts, np.zeros(2, dtype=bool))
    with pytest.raises(ValueError, match="read-only"):
        labels.frequencies[0] = 5
    labels = labels.with_labels(["z"], ["z"]).without([0])
    counts[:] = 9
    assert labels.frequencies.tolist() == [1, 2, 0]
    with pytest.raises(DataError, match="order must be one of frequency, text, id, but is 'size'"):
        labels.select(order="size")
    with pytest.raises(DataError, match="frequency must be one of head, torso, tail, but is 'heads'"):
        labels.select(frequency="heads")


# --- the command line ---


def test_pages_of_labels(folder):
    model = Model.load(folder)
    model.change(A)
    rows, total = list_labels(model, limit=2, offset=24, order="id")
    assert (total, rows) == (25, [LabelRow(id=24, uid="a", text="w0a w60i", frequency="tail", num_texts=0)])
    rows, total = list_labels(model, "W0A")
    assert (total, [row.id for row in rows]) == (2, [0, 24])
    assert [row.id for row in list_labels(model, "L7")[0]] == [7]
    assert list_labels(model, frequency="tail")[1] == 1
    rows, total = list_labels(model)
    assert (total, len(rows)) == (25, 20)
    assert [row.num_texts for row in rows] == sorted((row.num_texts for row in rows), reverse=True)


def test_command_line_appends_and_the_folder_stays_as_it_is(folder):
    manifest = (folder / "manifest.json").read_bytes()
    inode = (folder / "labels.jsonl").stat().st_ino
    added = json.loads(call("labels", "add", folder, "w0a w60i", "w5f w60i", "--json").stdout)["added"]
    assert added[1] == {"id": 25, "uid": "w5f w60i", "text": "w5f w60i", "frequency": "tail", "num_texts": 0}
    assert call("labels", "rename", folder, "w0a w60i", "w9j  w61j").stdout == "renamed w0a w60i: w9j  w61j\n"
    with pytest.raises(DataError, match="a label must be one of the model's, but it has no label with uid 'nobody'"):
        call("labels", "rename", folder, "nobody", "x")
    assert call("labels", "remove", folder, "L3", "L4").stdout == "removed 2: L3, L4\n"
    listed = call("labels", "list", folder, "--search", "60i", "--order", "text").stdout
    assert listed == "label\tuid\tid\tfrequency\ttrain texts\nw5f w60i\tw5f w60i\t25\ttail\t0\n"
    found = json.loads(call("labels", "list", folder, "--frequency", "tail", "--order", "id", "--json").stdout)
    assert [row["id"] for row in found["labels"]] == [24, 25]
    with pytest.raises(DataError, match="order must be one of frequency, text, id, but is 'size'"):
        call("labels", "list", folder, "--order", "size")
    assert (folder / "manifest.json").read_bytes() == manifest
    assert (folder / "labels.jsonl").stat().st_ino == inode
    assert (folder / "changes.jsonl").read_text().count("\n") == 4
