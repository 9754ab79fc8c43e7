"""Labels of a model in lines and in packed files: the same labels, found and changed in the same way."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.synthetic import topics
from unidex.data.concepts import Concept, Term
from unidex.data.growing_texts import GrowingTexts, Numbers
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError
from unidex.features.words import Words
from unidex.model import saved_labels
from unidex.model.label_set import LabelSet
from unidex.model.model import Model
from unidex.model.saved_labels import read_labels, write_labels
from unidex.model.uid_table import UidTable
from unidex.storage.mapped import in_memory
from unidex.verbs.train import train

TEXTS = ["Roter Schuh", "Hut", "", "Größe 42", "hut"]


def label_set(uids=("s", "h", "x", "ß", "h2")):
    concepts = {1: Concept(texts=(Term("hat", "en"),), broader=("s",)), 3: Concept(notation="42")}
    return LabelSet(TEXTS, uids, np.array([120, 3, 0, 50, 1]), np.arange(5) == 4, concepts)


@pytest.fixture(params=["lines", "packed"])
def form(request, monkeypatch):
    monkeypatch.setattr(saved_labels, "PACKED_ABOVE", 0 if request.param == "packed" else 100)
    return request.param


@pytest.mark.parametrize("uids", [("s", "h", "x", "ß", "h2"), Numbers(5)])
def test_what_is_written_is_read(form, uids, tmp_path):
    wanted = label_set(uids)
    write_labels(tmp_path, wanted)
    assert (tmp_path / "labels.jsonl").exists() == (form == "lines")
    found = read_labels(tmp_path)
    assert (list(found.texts), list(found.uids), found.concepts) == (TEXTS, list(uids), wanted.concepts)
    assert (found.frequencies.tolist(), found.removed.tolist()) == ([120, 3, 0, 50, 1], [False] * 4 + [True])
    assert found.find_ids([uids[3], "?", uids[4], uids[0]]).tolist() == [3, -1, -1, 0]
    assert found.broader(1) == wanted.broader(1)


def test_labels_that_were_read_change_and_are_written_again(form, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write_labels(tmp_path / "one", label_set())
    changed = read_labels(tmp_path / "one").with_labels(["Mütze", "neu"], ["h2", "m"]).without([0]).with_text(1, "Hüte")
    write_labels(tmp_path / "two", changed)
    for labels in (changed, read_labels(tmp_path / "two"), replace(changed)):
        assert list(labels.texts) == ["Roter Schuh", "Hüte", "", "Größe 42", "hut", "Mütze", "neu"]
        # The uid of a removed label may be that of a new one.
        assert labels.find_ids(["s", "h", "h2", "m"]).tolist() == [-1, 1, 5, 6]
        assert labels.select(search="hüte").tolist() == [1]
        assert labels.select(search="ß", order="id").tolist() == [3]
    again = read_labels(tmp_path / "one")
    assert ("m" in again, again.removed.tolist()) == (False, [False] * 4 + [True])


def test_a_copy_of_labels_does_not_see_later_changes():
    first = label_set()
    second = replace(first)
    first.with_labels(["neu"], ["n"]).without([0]).with_text(1, "Hüte")
    assert ("n" in second, second.has_id(0), second.texts[1]) == (False, True, "Hut")


def test_numbers_as_uids_are_found_and_nothing_else_is():
    labels = label_set(Numbers(5)).with_labels(["neu"], ["7"])
    asked = ["0", "3", "4", "5", "7", "03", "٣", "-1", "9" * 5000, ""]
    assert labels.find_ids(asked).tolist() == [0, 3, -1, -1, 5, -1, -1, -1, -1, -1]


def test_equal_hashes_are_told_apart_by_their_uids(monkeypatch):
    monkeypatch.setattr("unidex.model.uid_table.crc32", lambda uid: len(uid))
    uids = [f"{row:03d}" for row in range(300)]
    found = UidTable(GrowingTexts(uids)).rows_of([*uids[::-1], "300"], np.zeros(300, dtype=bool))
    assert found.tolist() == [*range(299, -1, -1), -1]


@pytest.mark.parametrize("name", ["texts.bytes", "texts.ends", "uids.ends", "frequencies", "uid_rows", "uid_hashes"])
def test_a_packed_file_that_was_cut_short_is_named(monkeypatch, name, tmp_path):
    monkeypatch.setattr(saved_labels, "PACKED_ABOVE", 0)
    write_labels(tmp_path, label_set())
    file = tmp_path / "labels" / f"{name}.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises((ModelError, DataError), match=r"labels"):
        read_labels(tmp_path)


def test_texts_of_many_labels_are_mapped_everywhere_and_checked_where_they_are_read(monkeypatch, tmp_path):
    monkeypatch.setattr(saved_labels, "PACKED_ABOVE", 0)
    monkeypatch.setattr(saved_labels, "CHECKED_UP_TO", 2)
    labels = label_set()
    write_labels(tmp_path, labels)
    with in_memory():
        found = read_labels(tmp_path)
    assert found._names[0].packed.is_mapped
    assert list(found.texts) == list(labels.texts)
    assert found.find_ids(list(labels.uids)).tolist() == labels.find_ids(list(labels.uids)).tolist()
    file = tmp_path / "labels" / "texts.ends.npy"
    ends = np.load(file)
    for wrong in (1 << 40, -5, int(ends[2]) + 1):
        np.save(file, np.append([ends[0], wrong], ends[2:]))
        damaged = read_labels(tmp_path)
        with pytest.raises(DataError, match=r"saved texts must be UTF-8, but are damaged"):
            [damaged.texts[row] for row in (1, 2)]
    np.save(file, ends - 1)
    with pytest.raises(ModelError, match=r"texts\.ends\.npy: ends of saved texts must ascend"):
        read_labels(tmp_path)


def test_growing_texts_are_a_list():
    given = Texts.of(["a", "b", "c"])
    texts, wanted = GrowingTexts(given), ["a", "b", "c"]
    for one in (texts, wanted):
        one.extend(["d", "e"])
        one[1], one[3], one[-1] = "B", "D", "E"
    assert list(texts) == wanted == [texts[row] for row in range(5)] == [texts[row - 5] for row in range(5)]
    assert texts[1:4] == wanted[1:4]
    assert (texts == wanted, texts == wanted[:4], texts == GrowingTexts(wanted)) == (True, False, True)
    assert list(given) == ["a", "b", "c"]
    for row in (5, -6):
        with pytest.raises(IndexError):
            texts[row]


def test_a_model_with_packed_labels_is_the_same_model(monkeypatch, tmp_path):
    data = topics()
    model = train(data, settings=["encoder.dim=8", "features.min_df=3", "train.epochs=1"], out=tmp_path / "lines")
    monkeypatch.setattr(saved_labels, "PACKED_ABOVE", 0)
    model.save(tmp_path / "packed")
    texts = [*data.test.texts[:20], "w47v neverseen", "brandnew"]
    wanted = Model.load(tmp_path / "lines").predict(texts, 3)
    read = []
    plain = Words.of
    monkeypatch.setattr(Words, "of", lambda texts: read.append(len(texts)) or plain(texts))
    found = Model.load(tmp_path / "packed")
    assert found.labels.word_keys is not None
    assert not (tmp_path / "packed" / "labels.jsonl").exists()
    predicted = found.predict(texts, 3)
    assert predicted.to_dict() == wanted.to_dict()
    # The texts of all labels are not read again.
    assert data.num_labels not in read
    found.add_labels(["brandnew"], ["n"])
    assert found.known_shares(["brandnew"]).known_N.tolist() == [1.0]
    found.save(tmp_path / "again")
    again = Model.load(tmp_path / "again")
    assert again.known_shares(["brandnew neverseen"]).known_N.tolist() == [0.5]
    assert again.labels.id_of("n") == data.num_labels


@pytest.mark.parametrize("frequency", ["99999999999999999999", "-1", "1e99", '"3"'])
def test_a_frequency_that_counts_nothing_is_refused(frequency, tmp_path):
    (tmp_path / "labels.jsonl").write_text(f'{{"uid":"a","text":"b","frequency":{frequency}}}\n')
    with pytest.raises(ModelError, match=r"labels\.jsonl: the labels cannot be read"):
        read_labels(tmp_path)
