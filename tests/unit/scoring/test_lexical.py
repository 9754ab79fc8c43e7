"""The lexical part: against TF-IDF one pair at a time, with labels that come and go, and with texts of any kind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from helpers.naive_features import some_text
from helpers.naive_lexical import NaiveLexical, naive_terms
from unidex.data.concepts import Concept, Term
from unidex.errors import ModelError
from unidex.features.analyser import Analyser
from unidex.scoring import lexical, lexical_columns, lexical_rows, mapped_matches, mapped_words
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.lexical_columns import Reading
from unidex.storage.small_numbers import load_numbers, save_numbers

LABELS = [
    "Sea turtles",
    "turtle soup",
    "GoldenRatio windows",
    "golden ratio",
    "",
    "...",
    "Blücher 1742",
    "sea of the golden turtles",
    "日本語",
    "Sea turtles",
    "a",
]
TEXTS = [
    "A sea turtle and other SEA TURTLES at sea",
    "the GoldenRatio of windows",
    "",
    "?!",
    "nothing shared: xyzzy",
    "Blücher, 日本語 and a golden soup \U0001f600",
    "turtle " * 400 + "ratio",
]
KINDS = {"word_overlap": "word", "char_overlap": "char"}


@pytest.fixture(scope="module", autouse=True, params=["in memory", "in files"])
def form(request):
    """Every test is run with the words of labels in memory, and in files as those of very many labels."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in files":
            for module in (lexical, mapped_matches):
                patch.setattr(module, "MAPPED_ABOVE", -1)
            for name, value in (("_TEXTS_AT_ONCE", 3), ("_LISTED_AT_ONCE", 4), ("_TERMS_AT_ONCE", 5)):
                patch.setattr(mapped_words, name, value)
        yield request.param


def label_rows(part):
    return part._labels.rows_of(np.arange(part.num_labels))[0].rows_RF


def every_label(texts, part):
    return np.tile(np.arange(part.num_labels), (len(texts), 1))


def assert_as_naive(part, naive, texts=TEXTS):
    found = part.overlaps(part.rows(texts), every_label(texts, part))
    assert part.num_labels == len(naive.labels)
    for row, text in enumerate(texts):
        for label in range(part.num_labels):
            for name, kind in KINDS.items():
                assert found[name][row, label] == pytest.approx(naive.overlap(kind, text, label), abs=1e-6)
            assert found["word_coverage"][row, label] == pytest.approx(naive.coverage(text, label), abs=1e-6)
    lengths = [naive.label_length(label) for label in range(part.num_labels)]
    assert part.sizes(every_label(["a"], part)).tolist() == [lengths]
    assert np.diff(part.rows(texts).indptr).tolist() == [naive.text_length(text) for text in texts]


def equal_matrices(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        and getattr(one, name).dtype == getattr(other, name).dtype
        for name in ("data", "indices", "indptr")
    )


def test_overlap_and_coverage_are_those_of_tf_idf():
    part, naive = LexicalPart.of(LABELS), NaiveLexical(LABELS)
    assert_as_naive(part, naive)
    # Not only zeros and ones are compared.
    found = part.overlaps(part.rows(TEXTS), every_label(TEXTS, part))
    assert all(((values > 0.05) & (values < 0.95)).sum() > 3 for values in found.values())


def test_known_answers_by_hand():
    """Two labels; "sea" is in both, so its idf is 1, and "crabs" has 1 + ln(3 / 2) = 1.4055."""
    part = LexicalPart.of(["sea crabs", "sea"])
    rare, both = 1 + np.log(3 / 2), 1.0
    found = part.overlaps(part.rows(["sea lions", "crabs"]), np.array([[0, 1], [0, 1]]))
    norm = np.hypot(rare, both)
    np.testing.assert_allclose(found["word_overlap"], [[both / norm, 1.0], [rare / norm, 0.0]], atol=1e-6)
    np.testing.assert_allclose(found["word_coverage"], [[both / norm**2, 1.0], [(rare / norm) ** 2, 0.0]], atol=1e-6)


def test_a_text_is_read_to_its_end():
    part = LexicalPart.of(["turtle", "soup"])
    text = "soup " + "x" * 1_000_000 + " turtle"
    for texts in ([text], [text] * 20):
        rows = part.rows(texts)
        assert part.overlaps(rows, np.array([[0, 1]] * len(texts)))["word_coverage"].tolist() == [[1.0, 1.0]] * len(
            texts
        )


def test_older_models_read_the_first_characters(tmp_path):
    """Their rankers were fitted to what texts share with labels there."""
    LexicalPart.of(["turtle", "soup"]).save(tmp_path / "lexical")
    (tmp_path / "lexical" / "reading.json").unlink()
    part = LexicalPart.load(tmp_path / "lexical", ["turtle", "soup"])
    part.save(tmp_path / "again")
    text = "soup " + "x" * (2000 - 5 - 7) + " turtle"
    for each in (part, LexicalPart.load(tmp_path / "again", ["turtle", "soup"])):
        assert each.overlaps(each.rows([text]), np.array([[0, 1]]))["word_coverage"].tolist() == [[1.0, 1.0]]
        assert each.overlaps(each.rows([" " + text]), np.array([[0, 1]]))["word_coverage"].tolist() == [[0.0, 1.0]]


def test_the_rarest_words_of_a_long_text_find_candidates(monkeypatch):
    part = LexicalPart.of(["sea", "sea soup", "sea turtle", "sea lion"])
    monkeypatch.setattr(lexical, "_MAX_SEARCHED", 1)
    rows = part.rows(["sea", "turtle at sea"])
    assert part.search(rows, 4).ids.tolist() == [[0, 1, 2, 3], [2, -1, -1, -1]]


def test_more_texts_than_are_read_at_once_do_not_mix():
    """The buffer of a block is cleared: a word of one text is no word of the text at its place in the next block."""
    texts = [TEXTS[number % len(TEXTS)] for number in range(5 * lexical_rows._TEXTS_AT_ONCE + 3)]
    part = LexicalPart.of(LABELS)
    found = part.overlaps(part.rows(texts), every_label(texts, part))
    alone = part.overlaps(part.rows(TEXTS), every_label(TEXTS, part))
    for name, values in found.items():
        assert np.array_equal(values, alone[name][np.arange(len(texts)) % len(TEXTS)])


def test_more_labels_than_are_read_at_once_have_the_same_rows(monkeypatch):
    whole = LexicalPart.of(LABELS)
    monkeypatch.setattr(lexical_columns, "_CHUNK", 3)
    assert equal_matrices(label_rows(LexicalPart.of(LABELS)), label_rows(whole))
    assert equal_matrices(whole.rows(TEXTS), LexicalPart.of(LABELS).rows(TEXTS))


# Candidates.


@pytest.mark.parametrize("most", [1, 2, 100])
def test_candidates_share_a_rare_word_and_the_highest_overlap_comes_first(monkeypatch, most):
    monkeypatch.setattr(lexical, "_MAX_LABELS", most)
    part, naive = LexicalPart.of(LABELS), NaiveLexical(LABELS)
    for k in (1, 3, 20):
        found = part.search(part.rows(TEXTS), k)
        assert found.ids.shape == (len(TEXTS), k)
        for row, text in enumerate(TEXTS):
            scores = [naive.rare_overlap(text, label, most) for label in range(len(LABELS))]
            order = sorted((label for label in range(len(LABELS)) if scores[label] > 0), key=lambda at: -scores[at])
            ids = found.ids[row][found.ids[row] >= 0]
            assert len(ids) == min(k, len(order))
            np.testing.assert_allclose([scores[label] for label in ids], [scores[at] for at in order[:k]], atol=1e-6)
            np.testing.assert_allclose(found.scores[row, : len(ids)], [scores[label] for label in ids], atol=1e-6)


def test_labels_with_the_same_text_come_by_id():
    part = LexicalPart.of(LABELS)
    assert part.search(part.rows(["sea turtles"]), 2).ids.tolist() == [[0, 9]]
    assert part.search(part.rows(["sea turtles"]), 1).ids.tolist() == [[0]]


def test_a_word_of_many_labels_finds_none():
    texts = [f"common word{number}" for number in range(101)]
    part = LexicalPart.of(texts)
    assert part.search(part.rows(["common"]), 3).ids.tolist() == [[-1, -1, -1]]
    assert part.search(part.rows(["common word7"]), 3).ids.tolist() == [[7, -1, -1]]
    assert LexicalPart.of(texts[:100]).search(part.rows(["common"]), 3).ids.tolist() == [[0, 1, 2]]


def test_hidden_labels_are_no_candidates():
    part = LexicalPart.of(LABELS)
    rows = part.rows(TEXTS)
    best = part.search(rows, 20)
    hidden = np.isin(np.arange(len(LABELS)), [0, 3])
    found = part.search(rows, 20, hidden)
    for row in range(len(TEXTS)):
        wanted = [label for label in best.ids[row].tolist() if label not in (0, 3)]
        assert found.ids[row].tolist() == wanted + [-1] * (20 - len(wanted))
    assert (best.ids == 0).any()
    assert (best.ids == 3).any()
    assert (part.search(rows, 3, np.ones(len(LABELS), dtype=bool)).ids == -1).all()


# Labels that come later.


def test_added_labels_are_found_and_the_weights_of_the_others_stay():
    part, naive = LexicalPart.of(LABELS), NaiveLexical(LABELS)
    before = label_rows(part).copy()
    part.search(part.rows(TEXTS), 3)  # what it keeps for searching must follow
    assert part.search(part.rows(["xyzzy"]), 3).ids.tolist() == [[-1, -1, -1]]
    more = ["golden xyzzy", "xyzzy plugh", ""]
    part.add(more)
    for text in more:
        naive.add(text)
    assert equal_matrices(label_rows(part)[: len(LABELS)], before)
    assert_as_naive(part, naive, [*TEXTS, *more])
    assert part.search(part.rows(["xyzzy"]), 3).ids.tolist() == [[11, 12, -1]]


def test_a_renamed_label_has_its_new_text_alone():
    part, naive = LexicalPart.of(LABELS), NaiveLexical(LABELS)
    part.search(part.rows(TEXTS), 3)
    others = np.delete(np.arange(len(LABELS)), 3)
    before = label_rows(part)[others]
    part.rename(3, "sea plugh")
    naive.rename(3, "sea plugh")
    assert part.num_labels == len(LABELS)
    assert equal_matrices(label_rows(part)[others], before)
    assert_as_naive(part, naive, [*TEXTS, "plugh", "golden ratio"])
    assert part.search(part.rows(["plugh"]), 1).ids.tolist() == [[3]]
    assert 3 not in part.search(part.rows(["golden ratio"]), 20).ids


def test_a_folder_has_the_same_part_bit_by_bit(tmp_path):
    part = LexicalPart.of(LABELS)
    part.add(["golden xyzzy"])
    part.rename(0, "sea plugh")
    part.save(tmp_path / "lexical")
    loaded = LexicalPart.load(tmp_path / "lexical", ["sea plugh", *LABELS[1:], "golden xyzzy"])
    texts = [*TEXTS, "xyzzy plugh"]
    assert equal_matrices(label_rows(part), label_rows(loaded))
    assert equal_matrices(part.rows(texts), loaded.rows(texts))
    for name, values in part.overlaps(part.rows(texts), every_label(texts, part)).items():
        assert np.array_equal(loaded.overlaps(loaded.rows(texts), every_label(texts, part))[name], values)
    one, other = part.search(part.rows(texts), 5), loaded.search(loaded.rows(texts), 5)
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.scores, other.scores)
    # Labels added to either are the same too.
    for each in (part, loaded):
        each.add(["golden soup"])
    assert equal_matrices(label_rows(part), label_rows(loaded))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("columns", lambda values: values + (1 << 17)),
        ("columns", lambda values: values - (1 << 17)),
        ("columns", lambda values: values[:-1]),
        ("starts", lambda values: values[::-1].copy()),
        ("starts", lambda values: values[:-1]),
        ("frequencies", lambda values: values[:-1]),
        ("num_counted", lambda values: np.append(values, 1)),
    ],
)
def test_a_damaged_folder_is_refused(form, tmp_path, name, change):
    if form == "in files" and name in ("columns", "starts"):
        pytest.skip("files of the other form")
    LexicalPart.of(LABELS).save(tmp_path / "lexical")
    file, types = tmp_path / "lexical" / name, {"columns": np.int32, "frequencies": np.int32}
    shape = (None,)
    save_numbers(file, change(load_numbers(file, shape, types.get(name, np.int64))))
    with pytest.raises(ModelError):
        LexicalPart.load(tmp_path / "lexical", LABELS)


@pytest.mark.parametrize("written", ["", "[]", '{"beginning": -1}', '{"language": "xx"}', '{"max_characters": 0}'])
def test_a_damaged_reading_is_refused(tmp_path, written):
    LexicalPart.of(LABELS).save(tmp_path / "lexical")
    (tmp_path / "lexical" / "reading.json").write_text(written)
    with pytest.raises(ModelError, match="reading"):
        LexicalPart.load(tmp_path / "lexical", LABELS)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Die Bibliotheken der Städte", "Bibliothekswesen"),
        ("Lainoja kirjastoissa", "kirjasto"),
        ("navigating coastal waters", "navigation"),
    ],
)
def test_inflected_labels_are_candidates(tmp_path, text, label):
    """Labels without training texts are found by nothing else."""
    part = LexicalPart.of(["turtle soup", label, "mountains"])
    part.save(tmp_path / "lexical")
    for each in (part, LexicalPart.load(tmp_path / "lexical", ["turtle soup", label, "mountains"])):
        assert each.search(each.rows([text]), 3).ids.tolist() == [[1, -1, -1]]
        assert 0 < each.overlaps(each.rows([text]), np.array([[1]]))["word_coverage"][0, 0] < 1


def test_stems_find_forms_that_share_no_beginning(tmp_path):
    texts, labels = ["Kirja kädessä"], ["käsi", "kädet"]
    plain, stems = (LexicalPart.of(labels, reading=Reading(Analyser("stems", language))) for language in ("", "fi"))
    stems.save(tmp_path / "lexical")
    for part, found in ((plain, -1), (stems, 1), (LexicalPart.load(tmp_path / "lexical", labels), 1)):
        assert part.search(part.rows(texts), 1).ids.tolist() == [[found]]
        assert part.search(part.rows(texts * 20), 1).ids.tolist() == [[found]] * 20


def test_labels_without_words_and_no_texts_at_all():
    part = LexicalPart.of(["", "...", " \n"])
    rows = part.rows(["", "word", "!"])
    assert rows.nnz == 0
    for values in part.overlaps(rows, np.tile(np.arange(3), (3, 1))).values():
        assert values.tolist() == [[0.0] * 3] * 3
    assert (part.search(rows, 2).ids == -1).all()
    full = LexicalPart.of(LABELS)
    assert full.rows([]).shape[0] == 0
    assert full.search(full.rows([]), 2).ids.shape == (0, 2)
    assert full.overlaps(full.rows([]), np.empty((0, 4), dtype=np.int64))["word_overlap"].shape == (0, 4)
    assert full.overlaps(full.rows(TEXTS), np.empty((len(TEXTS), 0), dtype=np.int64))["char_overlap"].shape == (7, 0)


odd_text = st.one_of(
    some_text,
    st.sampled_from(["", "!?.,;", "\U0001f600\U0001f3f3️‍\U0001f308", "\x00", "​", "x" * 5000, "ab " * 3000, "é" * 2001]),
    st.text(alphabet="\U0001f600\U0001f44d🏽‍é漢#_ ", max_size=12),
)


@given(st.lists(odd_text, min_size=1, max_size=5), st.lists(odd_text, max_size=4), odd_text)
def test_any_texts_have_scores_from_0_to_1(labels, texts, added):
    part = LexicalPart.of(labels)
    texts = [*texts, *labels]
    part.add([added])
    part.rename(0, added)
    rows = part.rows(texts)
    for values in part.overlaps(rows, every_label(texts, part)).values():
        assert values.shape == (len(texts), len(labels) + 1)
        assert np.isfinite(values).all()
        assert values.min() >= 0
        assert values.max() <= 1 + 1e-5
    found = part.search(rows, 3)
    assert found.ids.max() <= len(labels)
    assert (found.scores[found.ids >= 0] > 0).all()
    # A text has all words of the label with the same text; the label at 0 has another one now.
    if part.rows([added]).nnz:
        own = part.overlaps(part.rows([added]), np.array([[0, len(labels)]]))
        has_words = naive_words_in(added)
        assert own["word_coverage"][0].tolist() == pytest.approx([float(has_words)] * 2, abs=1e-5)


def naive_words_in(text):
    return bool(NaiveLexical([text]).labels[0]["word"])


def test_labels_that_a_text_has_whole_are_equal_to_the_last_bit():
    """Trees tell a distance of 1e-7 to the best label from none, so that rounding must not make one."""
    labels = [" ".join(f"word{(7 * label + at) % 50}" for at in range(1 + label % 9)) for label in range(200)]
    part = LexicalPart.of(labels)
    found = part.overlaps(part.rows([" ".join(f"word{at}" for at in range(50))]), np.arange(200)[None])
    assert set(found["word_coverage"][0].tolist()) == {1.0}


def test_a_few_texts_have_the_rows_of_many(monkeypatch):
    texts = ["", "Sea turtles", "getHTTPPort_2 of a sea", "turtles turtles", "Ünïcode ﬁne", "sea" * 900, "..."]
    part = LexicalPart.of(["sea turtles", "http port", "ünïcode", "a fine sea"])
    many = part.rows([*texts, *["sea"] * 20])[: len(texts)]
    monkeypatch.setattr(lexical_columns, "_MAX_WORDS", 3)
    for few in (part.rows(texts), part.rows(texts), sparse.vstack([part.rows([text]) for text in texts], format="csr")):
        assert few.indptr.tolist() == many.indptr.tolist()
        assert few.indices.tolist() == many.indices.tolist()
        assert few.data.tolist() == many.data.tolist()


# Several texts per label.

FURTHER = {
    1: Concept(texts=(Term("golden xyzzy"), Term("Schildkrötensuppe", "de"))),
    4: Concept(texts=(Term("sea"),)),
    9: Concept(notation="9"),
}


def naive_of_all_texts():
    """Every text as a label of its own, with the frequencies and the number of the labels."""
    texts = [*LABELS, *(term.text for label in sorted(FURTHER) for term in FURTHER[label].texts)]
    naive = NaiveLexical(texts)
    naive.num_counted = len(LABELS)
    naive.frequencies.clear()
    for label, text in enumerate(LABELS):
        own = [naive_terms(text), *(naive_terms(term.text) for term in FURTHER.get(label, Concept()).texts)]
        naive.frequencies.update({(kind, name) for terms in own for kind in terms for name in terms[kind]})
    return naive, [[0], [1, 11, 12], [2], [3], [4, 13], *([label] for label in range(5, len(LABELS)))]


def test_the_text_of_a_label_that_shares_most_counts():
    part = LexicalPart.of(LABELS, FURTHER)
    naive, rows_of = naive_of_all_texts()
    texts = [*TEXTS, "an xyzzy", "Schildkrötensuppe"]
    found = part.overlaps(part.rows(texts), every_label(texts, part))
    for row, text in enumerate(texts):
        for label, rows in enumerate(rows_of):
            for name, kind in KINDS.items():
                best = max(naive.overlap(kind, text, other) for other in rows)
                assert found[name][row, label] == pytest.approx(best, abs=1e-6)
            best = max(naive.coverage(text, other) for other in rows)
            assert found["word_coverage"][row, label] == pytest.approx(best, abs=1e-6)
        scores = [max(naive.rare_overlap(text, other, 100) for other in rows) for rows in rows_of]
        order = sorted((label for label in range(len(LABELS)) if scores[label] > 0), key=lambda at: -scores[at])
        best = part.search(part.rows([text]), 20)
        np.testing.assert_allclose(best.scores[0, : len(order)], [scores[at] for at in order], atol=1e-6)
        assert sorted(best.ids[0, : len(order)].tolist()) == sorted(order)
        assert (best.ids[0, len(order) :] == -1).all()


def test_labels_with_further_texts_come_later_and_are_saved(tmp_path):
    part = LexicalPart.of(LABELS, FURTHER)
    part.add(["plugh", "quux"], {1: Concept(texts=(Term("sea plugh"),))})
    part.rename(1, "soup")
    part.save(tmp_path / "lexical")
    label_texts = [LABELS[0], "soup", *LABELS[2:], "plugh", "quux"]
    loaded = LexicalPart.load(tmp_path / "lexical", label_texts)
    for one in (part, loaded):
        assert one.search(one.rows(["plugh"]), 3).ids.tolist() == [[11, 12, -1]]
        assert one.search(one.rows(["xyzzy"]), 1).ids.tolist() == [[1]]
        assert one.overlaps(one.rows(["sea plugh"]), np.array([[12, 11]]))["word_coverage"].tolist() == [[1.0, 1.0]]
    hidden = np.isin(np.arange(13), [1])
    assert part.search(part.rows(["xyzzy"]), 1, hidden).ids.tolist() == [[-1]]
    save_numbers(tmp_path / "lexical" / "further_labels", np.array([1, 1, 4, 99]))
    with pytest.raises(ModelError, match="labels must ascend and be below 13"):
        LexicalPart.load(tmp_path / "lexical", label_texts)
