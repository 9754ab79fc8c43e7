"""Words of texts in scripts without blanks between words, and stems of words."""

from typing import get_args

from Stemmer import Stemmer

from unidex.config import Features as Settings
from unidex.config.features import Language
from unidex.features.extractor import FeatureExtractor
from unidex.features.known_words import KnownWords
from unidex.features.stems import SNOWBALL, stems
from unidex.features.word_strings import words_in


def test_every_chinese_and_japanese_character_is_a_word():
    """Their words stand without blanks; a run of them would be one word that hardly comes again."""
    assert words_in("北京大学图书馆, 2nd ed.") == [*"北京大学图书馆", "2nd", "ed"]
    assert words_in("データベースのabc漢") == ["デ", "ー", "タ", "ベ", "ー", "ス", "の", "abc", "漢"]
    # Scripts with blanks between words keep them, with their vowel signs.
    assert words_in("한국어 पुस्तकालय المكتبة kirjasto") == ["한국어", "पुस्तकालय", "المكتبة", "kirjasto"]


STEMS = Settings(min_df=1, chars=True, num_buckets=16, language="fi", lead_weight=1.0, lead=2)
FINNISH = ["kirjastoissa on kirjoja", "Kirjaston kirjat ovat getHTTPPort_2 luettelossa", "", "kirjasto 图书"]


def test_stems_replace_words_before_any_feature_is_made():
    snowball = Stemmer("finnish")
    by_hand = [
        " ".join(word if "HTTP" in word else snowball.stemWord(word.lower()) for word in words_in(text))
        for text in FINNISH
    ]
    features = FeatureExtractor.fit(FINNISH, ["kirjastot"], STEMS)
    plain = FeatureExtractor.fit(by_hand, [snowball.stemWord("kirjastot")], STEMS.model_copy(update={"language": ""}))
    assert features.num_features == plain.num_features
    assert list(features.names) == list(plain.names)
    assert (features.transform(FINNISH) != plain.transform(by_hand)).nnz == 0


def test_stems_one_by_one_are_those_of_many(tmp_path):
    features = FeatureExtractor.fit(FINNISH, ["kirjastot"], STEMS)
    features.save(tmp_path)
    whole = features.transform(FINNISH)
    assert (FeatureExtractor.load(tmp_path).transform_few(FINNISH) != whole).nnz == 0
    for row, text in enumerate(FINNISH):
        ids, weights = features.transform_one(text)
        assert ids.tolist() == whole[[row]].indices.tolist()
        assert weights.tolist() == whole[[row]].data.tolist()


def test_stems_have_the_places_of_their_words():
    text = FINNISH[1]
    features = FeatureExtractor.fit(FINNISH, [], STEMS)
    placed = features.placed(text)
    places = set(zip(placed.starts.tolist(), placed.ends.tolist(), strict=True))
    assert {text[start:end] for start, end in places} == set(text.split())
    known = KnownWords(features, ["hattu"])
    assert known.shares(["kirjastolle hatun"]).known_N.tolist() == [1.0]


def test_every_language_has_a_stemmer():
    for language in SNOWBALL:
        assert stems(language)("a")
    assert {*get_args(Language)} == {"", "auto", *SNOWBALL}
