"""Matches of labels: against sets of words one pair at a time, with labels that come and go, and in languages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from helpers.naive_matches import NaiveMatches
from unidex.data.concepts import Concept, Term
from unidex.data.dataset import Split
from unidex.data.texts import Texts
from unidex.errors import ModelError
from unidex.features.analyser import Analyser
from unidex.scoring import mapped_matches, match_files, match_finder, match_rows
from unidex.scoring.lexical_columns import Reading
from unidex.scoring.mapped_matches import load_matches, matches_of
from unidex.scoring.matches import MATCHES
from unidex.storage.small_numbers import save_numbers

LABELS = ["sea turtles", "mercury (planet)", "mercury", "sea", "", "(only brackets)", "Turtles of the sea", "日本"]
TEXTS = ["A sea of turtles: SEA!", "mercury", "", "...", "日本 and the only brackets", "sea turtles of the sea " * 9]


@pytest.fixture(scope="module", autouse=True, params=["in memory", "in files"])
def form(request):
    """Every test is run with the words of labels in memory, and in files as those of very many labels."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in files":
            patch.setattr(mapped_matches, "MAPPED_ABOVE", -1)
            patch.setattr(match_rows, "_TEXTS_AT_ONCE", 2)
            for name, value in (("_AT_ONCE", 4), ("_ROWS_AT_ONCE", 3)):
                patch.setattr(match_files, name, value)
            patch.setattr(mapped_matches, "_ROWS_AT_ONCE", 3)
        yield request.param


def assert_as_naive(labels, naive, texts=TEXTS):
    every = np.tile(np.arange(labels.num_labels), (len(texts), 1))
    found = labels.features(labels.find(texts), every)
    assert tuple(found) == MATCHES
    for row, text in enumerate(texts):
        for label in range(labels.num_labels):
            wanted = naive.features(text, label)
            assert {name: found[name][row, label] for name in MATCHES} == pytest.approx(wanted, abs=1e-6), (text, label)


def some_split(texts, num_labels, seed=0):
    drawn = np.random.default_rng(seed).random((len(texts), num_labels)) < 0.4
    return Split.of(Texts.of(texts), sparse.csr_array(drawn.astype(np.float32))), drawn


def test_matches_are_those_of_sets_of_words(monkeypatch):
    monkeypatch.setattr(match_finder, "_TEXTS_AT_ONCE", 4)
    labels, naive = matches_of(LABELS), NaiveMatches(LABELS)
    assert_as_naive(labels, naive)
    split, drawn = some_split(TEXTS, len(LABELS))
    labels.learn(split, np.array([0, 1, 2, 4, 5]))
    naive.learn([TEXTS[row] for row in (0, 1, 2, 4, 5)], [np.flatnonzero(drawn[row]) for row in (0, 1, 2, 4, 5)])
    assert_as_naive(labels, naive)
    labels.learn(split, np.array([3, 0]))
    naive.learn([TEXTS[3], TEXTS[0]], [np.flatnonzero(drawn[3]), np.flatnonzero(drawn[0])])
    assert_as_naive(labels, naive)


@given(
    st.lists(st.text(alphabet="ab (c)\n日", max_size=8), max_size=5),
    st.lists(st.text("ab c日", max_size=9), max_size=4),
)
def test_matches_of_drawn_texts_are_those_of_sets_of_words(label_texts, texts):
    assert_as_naive(matches_of(label_texts), NaiveMatches(label_texts), texts)


def test_labels_that_are_added_and_renamed_match(tmp_path):
    labels, naive = matches_of(LABELS[:3]), NaiveMatches(LABELS[:3])
    split, drawn = some_split(TEXTS, 3)
    labels.learn(split, np.arange(len(TEXTS)))
    naive.learn(TEXTS, map(np.flatnonzero, drawn))
    labels.find(TEXTS)  # What it has computed so far must not be used again.
    labels.add(["the sea", "planet"], {1: Concept(texts=(Term("turtles"), Term("sea turtles")))})
    naive.add("the sea")
    naive.add("planet", "turtles", "sea turtles")
    assert_as_naive(labels, naive)
    for label, text in ((4, "of the"), (0, "only sea"), (4, "mercury")):
        labels.rename(label, text)
        naive.rename(label, text)
        assert_as_naive(labels, naive)
    labels.save(tmp_path)
    loaded = load_matches(tmp_path, 5, Reading())
    assert_as_naive(loaded, naive)
    loaded.add(["only"])
    naive.add("only")
    assert_as_naive(loaded, naive)


def test_the_name_of_a_label_matches_where_no_other_label_has_it(form, tmp_path):
    labels = matches_of(["gajim: chat client", "Element: id", "Element: tag", "bzip2: compressor"])
    labels.save(tmp_path)
    texts = ["gajim with PGP", "an Element", "the chat client gajim"]

    def matched(some, texts):
        found = some.find(texts).places_NL
        return [found.indices[found.indptr[row] : found.indptr[row + 1]].tolist() for row in range(len(texts))]

    name = [0] if form == "in memory" else []
    for some in (labels, load_matches(tmp_path, 4, Reading())):
        assert matched(some, texts) == [name, [], [0]]
        words = some.features(some.find(texts), np.zeros((3, 1), dtype=np.int64))["match_words"]
        assert words.tolist() == [[len(name)], [0], [3]]
        # Labels that come later have names too, but none that another label has.
        some.add(["emacs: editor", "bzip2: library"], {0: Concept(texts=(Term("lisp"),))})
        added = [4] if name else []
        assert matched(some, ["emacs", "emacs editor", "lisp"]) == [added, [4], [4]]
        assert matched(some, ["bzip2", "bzip2 library"]) == [[3] if name else [], [3, 5] if name else [5]]
        some.rename(0, "kodi: player")
        kodi = [0] if name else []
        assert matched(some, ["gajim", "kodi", "kodi player", "lisp", "Element tag"]) == [[], kodi, [0], [4], [2]]
        some.rename(0, "emacs: client")
        assert matched(some, ["kodi", "emacs", "emacs client"]) == [[], added, [0, *added]]
    again = load_matches(tmp_path, 4, Reading())
    again.add(["emacs: editor"])
    (tmp_path / "again").mkdir()
    again.save(tmp_path / "again")
    assert matched(load_matches(tmp_path / "again", 5, Reading()), ["emacs"]) == [added]
    # Less than half of these labels have a name that is their own.
    few = matches_of(["gajim: chat client", "Element: id", "Element: tag"])
    assert matched(few, ["gajim", "gajim, a chat client"]) == [[], [0]]


def test_names_that_are_no_texts_are_refused(form, tmp_path):
    if form == "in memory":
        matches_of(["gajim: chat client"]).save(tmp_path)
        save_numbers(tmp_path / "match_names", np.array([2]))
        with pytest.raises(ModelError, match="names must be among 2 texts"):
            load_matches(tmp_path, 1, Reading())


def test_the_best_matches_come_first_and_hidden_labels_not_at_all():
    labels = matches_of(["sea", "turtles", "of"])
    positives = sparse.csr_array(np.array([[0, 1, 0]] * 10, dtype=np.float32))
    labels.learn(Split.of(Texts.of(["sea of turtles"] * 10), positives), np.arange(10))
    found = labels.find(["sea of turtles", "of of sea", "nothing"])
    assert labels.search(found, 2).ids.tolist() == [[1, 0], [2, 0], [-1, -1]]
    hidden = np.array([True, False, False])
    assert labels.search(found, 2, hidden).ids.tolist() == [[1, 2], [2, -1], [-1, -1]]


def test_of_many_training_texts_evenly_spread_ones_are_read(monkeypatch):
    monkeypatch.setattr(match_finder, "MAX_LEARNED", 3)
    labels = matches_of(["a", "b"])
    split = Split.of(Texts.of(["a", "a", "b", "a", "b"]), sparse.csr_array(np.ones((5, 2), dtype=np.float32)))
    labels.learn(split, np.arange(5))
    found = labels.features(labels.find(["a b"]), np.array([[0, 1]]))
    assert found["match_texts"].tolist() == [[1, 2]]


def test_stems_and_parts_of_compounds_match():
    stems = matches_of(["käsi", "kädet"], reading=Reading(Analyser("stems", "fi")))
    assert stems.find(["kirja kädessä"]).places_NL.indices.tolist() == [1]
    parts = ("bibliothek", "wesen")
    compounds = matches_of(["Bibliothek", "Bibliothekswesen"], reading=Reading(Analyser("words", "de", parts=parts)))
    assert compounds.find(["Das Bibliothekswesen"]).places_NL.indices.tolist() == [0, 1]
    assert compounds.find(["Die Bibliothek"]).places_NL.indices.tolist() == [0]


def test_damaged_files_are_refused_and_missing_ones_are_of_an_earlier_version(form, tmp_path):
    assert load_matches(tmp_path, 2, Reading()) is None
    if form == "in files":
        pytest.skip("files of the other form")
    matches_of(["a b", "c"]).save(tmp_path)
    save_numbers(tmp_path / "match_labels", np.array([0, 7]))
    with pytest.raises(ModelError, match="must be those of 2 labels"):
        load_matches(tmp_path, 2, Reading())
    save_numbers(tmp_path / "match_labels", np.array([0, 1]))
    save_numbers(tmp_path / "match_places", np.array([0, 1, 3]))
    with pytest.raises(ModelError, match="places must be those of 3 words"):
        load_matches(tmp_path, 2, Reading())
    save_numbers(tmp_path / "match_places", np.array([0, 1, 2]))
    save_numbers(tmp_path / "match_texts", np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(ModelError, match="match_texts"):
        load_matches(tmp_path, 2, Reading())
