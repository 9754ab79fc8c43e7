"""Features of texts: known answers, a naive double, single texts, saving, caching, determinism."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from helpers.naive_features import EVERYTHING, LABELS, TEXTS, naive_features, settings_with, some_settings, some_text
from unidex import progress
from unidex.config import Features as Settings
from unidex.config.recipes import load
from unidex.data.texts import Texts
from unidex.errors import ConfigError, DataError, ModelError
from unidex.features import cache, single_text
from unidex.features.cache import cached_transform, fingerprint
from unidex.features.extractor import FeatureExtractor
from unidex.features.feature_counts import Counter as KeyCounter
from unidex.features.words import Words, parts_of


def rows_by_name(features, texts):
    """Each row of the matrix as {name: weight}."""
    matrix = features.transform(texts)
    ends = matrix.indptr.tolist()
    return [
        {
            features.name(feature): weight
            for feature, weight in zip(matrix.indices[start:end].tolist(), matrix.data[start:end].tolist(), strict=True)
        }
        for start, end in pairwise(ends)
    ]


def same(one, two):
    """Whether two matrices agree to the last bit."""
    return (
        one.shape == two.shape
        and np.array_equal(one.indptr, two.indptr)
        and np.array_equal(one.indices, two.indices)
        and one.data.tobytes() == two.data.tobytes()
    )


def naive_feature_rows(train, labels, texts, settings):
    """{name: weight} of each text."""
    df = Counter()
    for text in [*train, *labels]:
        df.update({name for _, name in naive_features(text, settings)})
    num_texts = len(train) + len(labels)
    rows = []
    for text in texts:
        row = Counter()
        for (_, name), tf in Counter(naive_features(text, settings)).items():
            frequency = df[name]
            if frequency < settings.min_df:
                continue
            idf = math.log((1 + num_texts) / (1 + frequency)) + 1
            row[name] += (1 + math.log(tf)) * idf
        length = math.sqrt(sum(weight**2 for weight in row.values()))
        rows.append({name: weight / length for name, weight in row.items()})
    return rows


@given(st.lists(some_text, max_size=6), st.lists(some_text, max_size=3), some_settings)
@hypothesis_settings(deadline=None, max_examples=150)
def test_matrix_equals_the_naive_one(train, labels, settings):
    features = FeatureExtractor.fit(train, labels, settings)
    texts = [*train, *labels, "golden Ratio unseen"]
    found = rows_by_name(features, texts)
    expected = naive_feature_rows(train, labels, texts, settings)
    assert len(found) == len(expected)
    for row, expected_row in zip(found, expected, strict=True):
        assert row == pytest.approx(expected_row, rel=1e-5)


@given(st.lists(some_text, max_size=5), some_settings, st.sampled_from([0, 7]), st.sampled_from([0.0, 0.7]))
@hypothesis_settings(deadline=None, max_examples=80)
def test_single_text_and_any_chunk_size_equal_the_batch(texts, settings, num_buckets, lead_weight):
    changes = {"num_buckets": num_buckets, "lead": 2, "lead_weight": lead_weight}
    settings = settings.model_copy(update=changes)
    train = [*TEXTS, *texts[:2]]
    features = FeatureExtractor.fit(train, LABELS, settings)
    in_ones = FeatureExtractor.fit(train, LABELS, settings, chunk_texts=1)
    assert features.fingerprint == in_ones.fingerprint
    matrix = features.transform([*texts, *TEXTS])
    assert same(matrix, features.transform([*texts, *TEXTS], chunk_texts=2))
    assert same(matrix, features.transform_few([*texts, *TEXTS]))
    for row, text in enumerate([*texts, *TEXTS]):
        ids, weights = features.transform_one(text)
        start, end = matrix.indptr[row], matrix.indptr[row + 1]
        assert ids.tolist() == matrix.indices[start:end].tolist()
        assert weights.tobytes() == matrix.data[start:end].tobytes()


def test_single_text_stays_equal_with_subwords_and_a_full_memory(monkeypatch):
    monkeypatch.setattr(single_text, "MEMORY", 3)
    features = FeatureExtractor.fit(TEXTS, LABELS, EVERYTHING)
    matrix = features.transform(TEXTS)
    for _ in range(2):
        assert same(matrix, features.transform_few(TEXTS))
        for row, text in enumerate(TEXTS):
            ids, weights = features.transform_one(text)
            assert ids.tolist() == matrix[[row]].indices.tolist()
            assert weights.tobytes() == matrix[[row]].data.tobytes()


@given(st.lists(some_text, max_size=5), st.sampled_from([1, 3]))
@hypothesis_settings(deadline=None, max_examples=60)
def test_the_first_words_of_a_text_count_again(texts, lead):
    texts = [*TEXTS, *texts, "one two three four five six"]
    plain = FeatureExtractor.fit(texts, LABELS, settings_with(min_df=1))
    leading = replace(plain, settings=plain.settings.model_copy(update={"lead": lead, "lead_weight": 0.5}))
    firsts = [" ".join(text.split()[:lead]) for text in texts]
    expected = (plain.transform(texts) + 0.5 * plain.transform(firsts)).toarray()
    # A text of less than twice as many words is what it was.
    short = [len(text.split()) < 2 * lead for text in texts]
    expected[short] = plain.transform(texts).toarray()[short]
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = expected / np.where(lengths > 0, lengths, 1)
    np.testing.assert_allclose(leading.transform(texts).toarray(), expected, atol=1e-6)


def test_weights_of_a_known_case():
    features = FeatureExtractor.fit(["red red hat", "red"], ["hat", "shoe"], settings_with(min_df=1, bigrams=False))
    [row] = rows_by_name(features, ["RED red red hat cap"])
    idf = math.log(5 / 3) + 1
    length = math.hypot((1 + math.log(3)) * idf, idf)
    assert row == pytest.approx({"red": (1 + math.log(3)) * idf / length, "hat": idf / length})


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("SetupDiGetActualSectionToInstallExW", "setup di get actual section to install ex w"),
        ("pass_ty_by_ref", "pass ty by ref"),
        ("IAMNetShowConfig", "iam net show config"),
        ("PIBIO_STORAGE_CONTROL", "pibio storage control"),
        ("x86_64", "x 86 64"),
        ("python3", "python 3"),
        ("__init__", "init"),
        ("ÄpfelÖl", "äpfel öl"),
        ("golden", ""),
        ("HTTP", ""),
        ("2024", ""),
        ("___", ""),
    ],
)
def test_parts_of_identifiers(word, parts):
    # Neighbours on both sides show that no word sees the letters of the next.
    words = Words.of([f"A {word} b"])
    found = parts_of(words)
    assert words.texts(found.starts, found.lengths) == parts.split()


def test_a_part_is_the_same_feature_as_the_word():
    features = FeatureExtractor.fit(["GoldenRatio"], ["golden"], settings_with(min_df=2, bigrams=False))
    assert rows_by_name(features, ["golden", "GOLDEN_hat", "hat"]) == [{"golden": 1.0}, {"golden": 1.0}, {}]


def test_what_one_text_and_one_label_share_is_not_too_rare():
    features = FeatureExtractor.fit(["a rare mineral", "common"], ["mineral"], settings_with(min_df=2))
    assert [features.name(feature) for feature in range(features.num_features)] == ["mineral"]


def test_words_keep_marks_and_meet_in_other_cases_and_forms():
    settings = settings_with(min_df=1, bigrams=False)
    features = FeatureExtractor.fit(["हिन्दी Blücher ΟΔΟΣ file"], [], settings)
    [one] = rows_by_name(features, ["हिन्दी Blücher ΟΔΟΣ file"])
    assert set(one) == {"हिन्दी", "blücher", "οδοσ", "file"}
    assert rows_by_name(features, ["हिन्दी BLU\u0308CHER οδος \ufb01le"]) == [one]


def test_texts_without_features_are_empty_rows():
    features = FeatureExtractor.fit(["red hat", "red hat"], [], settings_with())
    matrix = features.transform(["", "unseen words", "?!", "red", "\ud800"])
    assert matrix.dtype == np.float32
    assert matrix.indices.dtype == np.int32
    assert np.diff(matrix.indptr).tolist() == [0, 0, 0, 1, 0]
    assert features.transform([]).shape == (0, 3)
    assert features.transform_one("")[0].tolist() == []


def test_fit_on_nothing_gives_no_features():
    for settings in (settings_with(), settings_with(chars=True), settings_with(min_df=9)):
        features = FeatureExtractor.fit([""], [], settings)
        assert features.num_features == 0
        assert features.transform(["a text", ""]).shape == (2, 0)
        assert features.transform_one("a text")[0].tolist() == []


def test_rare_features_share_buckets():
    settings = settings_with(num_buckets=4, bigrams=False)
    features = FeatureExtractor.fit(["red hat", "red cap"], ["shoe"], settings)
    assert features.num_features == 1 + 4
    words = ["hat", "cap", "shoe", *(f"w{number}" for number in range(200))]
    matrix = features.transform([" ".join(words), "red red"])
    assert matrix[[1]].indices.tolist() == [0]
    assert matrix[[0]].indices.tolist() == [1, 2, 3, 4]
    assert features.name(0) == "red"
    assert features.name(2) == "(bucket 1)"


def test_a_bucket_is_as_frequent_as_what_it_holds():
    settings = settings_with(min_df=9, num_buckets=1, bigrams=False)
    features = FeatureExtractor.fit(["red", "hat"], ["cap", ""], settings)
    assert features.vocabulary.frequencies.tolist() == [3]
    assert features.idf.tolist() == pytest.approx([math.log(5 / 4) + 1])


def test_the_most_frequent_features_come_first_and_are_kept():
    texts = ["a b c d", "a b c", "a b", "a"]
    settings = settings_with(min_df=1, max_features=3, bigrams=False)
    features = FeatureExtractor.fit(texts, [], settings)
    assert [features.name(feature) for feature in range(3)] == ["a", "b", "c"]
    assert features.vocabulary.frequencies.tolist() == [4, 3, 2]


def test_names_tell_the_kinds():
    settings = settings_with(min_df=1, chars=True, chars_min=3, chars_max=3, subwords=True)
    features = FeatureExtractor.fit(["GoldenRatio red"], [], settings)
    names = {features.name(feature) for feature in range(features.num_features)}
    assert {"goldenratio", "golden", "ratio", "red", "goldenratio red", "go*", "*old*", "*ed"} <= names
    assert any(name.startswith("[\u2581") for name in names)
    with pytest.raises(DataError, match="a feature id must be from 0 to"):
        features.name(features.num_features)


def test_keys_of_many_strings_differ():
    words = [f"{first}{second}{number}" for first in "abcdefgh" for second in "xyz" for number in range(2000)]
    features = FeatureExtractor.fit(words, [], settings_with(min_df=1, parts=False))
    assert features.num_features == len(words)


def test_keys_are_the_same_on_every_machine():
    words = Words.of(["Golden"])
    total = 0x51ED270B27B4C1E9
    for place, character in enumerate("golden"):
        total += (ord(character) + 1) * 0x9E6C63D0876A9A47**place
    total %= 1 << 64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        total = (total ^ (total >> shift)) * factor % (1 << 64)
    assert words.keys.tolist() == [total ^ (total >> 31)] == [0xCA981D6762C0DA89]


def test_counts_merge_in_any_number_of_pieces(monkeypatch):
    monkeypatch.setattr("unidex.features.feature_counts.MERGE_AT", 3)
    rng = np.random.default_rng(0)
    counter, expected = KeyCounter(), Counter()
    for _ in range(50):
        keys = np.unique(rng.integers(0, 40, 6).astype(np.uint64))
        counter.add(keys, np.full(len(keys), 2))
        expected.update(dict.fromkeys(keys.tolist(), 2))
    keys, counts = counter.result()
    assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == expected
    assert keys.tolist() == sorted(expected)


def test_packed_texts_and_lists_give_the_same():
    features = FeatureExtractor.fit(Texts.of(TEXTS), Texts.of(LABELS), settings_with(min_df=1))
    assert same(
        features.transform(Texts.of(TEXTS)), FeatureExtractor.fit(TEXTS, LABELS, features.settings).transform(TEXTS)
    )


def test_one_text_in_place_of_many_is_an_error():
    features = FeatureExtractor.fit(["red"], [], settings_with(min_df=1))
    with pytest.raises(DataError, match="put it in a list"):
        features.transform("red")


@pytest.mark.parametrize("settings", [settings_with(), EVERYTHING, settings_with(num_buckets=3)])
def test_saved_features_give_the_same_rows(tmp_path, settings):
    features = FeatureExtractor.fit(TEXTS, LABELS, settings)
    features.save(tmp_path / "features")
    loaded = FeatureExtractor.load(tmp_path / "features")
    assert loaded.settings == settings
    assert loaded.fingerprint == features.fingerprint
    assert same(loaded.transform(TEXTS), features.transform(TEXTS))
    assert [loaded.name(i) for i in range(loaded.num_features)] == [
        features.name(i) for i in range(features.num_features)
    ]
    assert not [file for file in tmp_path.rglob("*") if file.suffix in {".pkl", ".pickle"}]


def test_a_damaged_folder_is_named(tmp_path):
    FeatureExtractor.fit(TEXTS, LABELS, settings_with()).save(tmp_path)
    with pytest.raises(ModelError, match=r"features\.json: saved features must be here"):
        FeatureExtractor.load(tmp_path / "nowhere")
    about = json.loads((tmp_path / "features.json").read_text())
    (tmp_path / "features.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(ModelError, match="features of format 2 are needed, but these have 99"):
        FeatureExtractor.load(tmp_path)
    (tmp_path / "features.json").write_text(json.dumps({**about, "settings": {"wordz": True}}))
    with pytest.raises(ModelError, match=r"settings must be whole, but .*wordz"):
        FeatureExtractor.load(tmp_path)
    (tmp_path / "features.json").write_text(json.dumps(about))
    np.save(tmp_path / "idf.npy", np.zeros(2, dtype=np.float32))
    with pytest.raises(ModelError, match=r"idf\.npy: there must be one number per feature"):
        FeatureExtractor.load(tmp_path)
    (tmp_path / "keys.numbers").write_bytes(b"no numbers")
    with pytest.raises(ModelError, match=r"keys\.numbers: numbers must be here, but cannot be read"):
        FeatureExtractor.load(tmp_path)


def test_a_given_tokenizer_is_used_and_saved(tmp_path):
    trained = FeatureExtractor.fit(TEXTS, LABELS, EVERYTHING)
    trained.save(tmp_path / "one")
    settings = settings_with(parts=False, bigrams=False, subwords=True, tokenizer=str(tmp_path / "one"))
    features = FeatureExtractor.fit(TEXTS, LABELS, settings)
    features.save(tmp_path / "two")
    (tmp_path / "one" / "tokenizer.json").unlink()
    assert features.num_features > 0
    assert same(FeatureExtractor.load(tmp_path / "two").transform(TEXTS), features.transform(TEXTS))
    with pytest.raises(ConfigError, match=r"tokenizer must be a tokenizer\.json or a folder with one"):
        FeatureExtractor.fit(TEXTS, LABELS, settings)


def test_cache_is_used_again(tmp_path, monkeypatch):
    features = FeatureExtractor.fit(TEXTS, LABELS, EVERYTHING)
    made = cached_transform(features, TEXTS, tmp_path)
    assert same(made, features.transform(TEXTS))
    for array in (made.data, made.indices):
        assert not array.flags.owndata
        assert not array.flags.writeable
    monkeypatch.setattr(FeatureExtractor, "rows", lambda *_, **__: pytest.fail("made again"))
    assert same(cached_transform(features, Texts.of(TEXTS), tmp_path), made)
    assert [file for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_cache_knows_texts_settings_and_vocabulary_apart():
    features = FeatureExtractor.fit(TEXTS, LABELS, settings_with())
    prints = {
        fingerprint(features, TEXTS),
        fingerprint(features, [*TEXTS[:-1], "...."]),
        fingerprint(features, [*TEXTS, ""]),
        fingerprint(features, ["ab", "c"]),
        fingerprint(features, ["a", "bc"]),
        fingerprint(FeatureExtractor.fit(TEXTS, LABELS[1:], settings_with()), TEXTS),
        fingerprint(FeatureExtractor.fit(TEXTS, LABELS, settings_with(lead_weight=0.5)), TEXTS),
    }
    assert len(prints) == 7


@pytest.mark.parametrize("damage", ["cut", "flip", "manifest", "missing", "empty"])
def test_a_damaged_cache_is_made_again(tmp_path, damage):
    features = FeatureExtractor.fit(TEXTS, LABELS, settings_with(min_df=1))
    expected = features.transform(TEXTS)
    cached_transform(features, TEXTS, tmp_path)
    place = tmp_path / fingerprint(features, TEXTS)
    weights = place / "weights"
    data = weights.read_bytes()
    if damage == "cut":
        weights.write_bytes(data[:-4])
    elif damage == "flip":
        weights.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif damage == "manifest":
        (place / "manifest.json").write_text("{")
    elif damage == "missing":
        weights.unlink()
    else:
        for file in place.iterdir():
            file.unlink()
    assert same(cached_transform(features, TEXTS, tmp_path), expected)
    assert weights.read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_features_that_cannot_be_cached_stay_in_memory(tmp_path, monkeypatch, caplog):
    features = FeatureExtractor.fit(TEXTS, LABELS, settings_with(min_df=1))

    def broken(folder, features, texts):
        (folder / "weights").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write", broken)
    assert (cached_transform(features, TEXTS, tmp_path) != features.transform(TEXTS)).nnz == 0
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in caplog.text
    # The cache cannot even be made.
    (tmp_path / "file").write_text("")
    assert (cached_transform(features, TEXTS, tmp_path / "file") != features.transform(TEXTS)).nnz == 0


def test_cache_of_texts_without_features(tmp_path):
    features = FeatureExtractor.fit(TEXTS, LABELS, settings_with())
    for texts in ([], [""], ["?"]):
        for _ in range(2):
            assert cached_transform(features, texts, tmp_path).shape == (len(texts), features.num_features)


SCRIPT = """
import json, sys
from unidex.config import Features as FeatureSettings
from unidex.features.extractor import FeatureExtractor
texts, labels, settings = json.load(sys.stdin)
features = FeatureExtractor.fit(texts, labels, FeatureSettings(**settings))
matrix = features.transform(texts)
print(features.fingerprint, matrix.indices.tobytes().hex(), matrix.data.tobytes().hex())
"""


def test_runs_with_other_hash_seeds_agree():
    given_input = json.dumps([TEXTS * 3, LABELS, EVERYTHING.model_dump()])
    outputs = set()
    for seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            input=given_input,
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1


def test_progress_is_reported_to_the_end():
    seen = Counter()

    class Listener:
        def task(self, what, total, unit):
            @contextmanager
            def running():
                yield lambda amount: seen.update({(what, total): amount})

            return running()

    progress.listen(Listener())
    try:
        FeatureExtractor.fit(TEXTS, LABELS, EVERYTHING).transform(TEXTS)
    finally:
        progress.listen(None)
    both = len(TEXTS) + len(LABELS)
    assert seen == {
        ("counting characters", both): both,
        ("training subwords", both): both,
        ("counting features", both): both,
        ("naming features", both): both,
        ("making features", len(TEXTS)): len(TEXTS),
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["features.tokenizer=x"], "features: tokenizer is 'x', but subwords are off"),
        (["features.min_df=0"], "features.min_df: Input should be greater than or equal to 1, but is 0"),
        (["features.chars_min=4", "features.chars_max=3"], r"chars_max must be at least chars_min \(4\), but is 3"),
        ([f"features.num_buckets={1 << 31}"], r"max_features \+ num_buckets must be below 2\^31"),
        (["features.words=false"], "without words there must be subwords alone, but parts, bigrams are on"),
        (["features.word=false"], "there is no setting features.word"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        load("unidec", settings)


def test_features_of_earlier_versions_are_read(tmp_path):
    features = FeatureExtractor.fit(TEXTS, LABELS, settings_with(min_df=1))
    features.save(tmp_path)
    file = tmp_path / "features.json"
    about = json.loads(file.read_text())
    # The settings that every model folder had.
    about["settings"] |= {"lower_case": True, "words": True, "subword_vocabulary": 30000, "weighting": "idf"}
    about["settings"] |= {"sublinear_tf": True, "normalise": "row", "keep_names": True, "word_scale": 1.0}
    file.write_text(json.dumps(about))
    assert same(FeatureExtractor.load(tmp_path).transform(TEXTS), features.transform(TEXTS))
    about["settings"]["normalise"] = "none"
    file.write_text(json.dumps(about))
    with pytest.raises(ModelError, match="normalise is 'none' and can only be 'row'"):
        FeatureExtractor.load(tmp_path)


def test_of_very_many_texts_evenly_spread_ones_are_counted(monkeypatch):
    texts = [f"word{number} shared" for number in range(20)]
    monkeypatch.setattr("unidex.features.extractor.MAX_COUNTED", 7)
    few = FeatureExtractor.fit(texts, ["a label"], settings_with(min_df=1))
    whole = FeatureExtractor.fit(texts[::3], ["a label"], settings_with(min_df=1))
    assert few.fingerprint == whole.fingerprint
    assert few.vocabulary.num_texts == 8


def test_packed_texts_have_the_fingerprint_of_the_same_strings(monkeypatch):
    monkeypatch.setattr("unidex.features.cache._BATCH", 3)
    features = FeatureExtractor.fit(TEXTS, LABELS, settings_with())
    texts = [*TEXTS, "", "caf\u00e9", ""]
    packed = Texts.of(texts)
    assert fingerprint(features, packed) == fingerprint(features, texts)
    assert fingerprint(features, packed[1::2]) == fingerprint(features, texts[1::2])
    assert fingerprint(features, packed.take([3, 0, 2])) == fingerprint(features, [texts[row] for row in (3, 0, 2)])


def test_subwords_alone_count_as_often_as_they_occur():
    texts = ["low lower lowest low", "new newer newest", "low new low new low", ""]
    alone = {"words": False, "parts": False, "bigrams": False, "subwords": True, "sublinear_tf": False}
    features = FeatureExtractor.fit(texts, ["low"], Settings(**alone, min_df=1, num_buckets=0))
    names = [features.name(feature) for feature in range(features.num_features)]
    assert all(name.startswith("[") for name in names)
    rows = features.transform(texts)
    assert (rows != features.transform_few(texts)).nnz == 0
    for text, row in zip(texts, rows.toarray(), strict=True):
        counts = np.zeros(len(names))
        for token in features.tokenizer.encode(text, add_special_tokens=False).tokens:
            counts[names.index(f"[{token}]")] += 1
        weights = counts * features.idf
        np.testing.assert_allclose(row, weights / max(np.linalg.norm(weights), 1e-12), rtol=1e-6)
    # By default a repeated token counts for less.
    damped = FeatureExtractor.fit(texts, ["low"], Settings(**alone | {"sublinear_tf": True}, min_df=1, num_buckets=0))
    assert damped.transform(["low low low new"]).data.max() < features.transform(["low low low new"]).data.max()
    assert {names[feature] for feature in features.placed("low new").features} == {
        names[feature] for feature in features.transform(["low new"]).indices
    }
