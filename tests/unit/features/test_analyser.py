"""The analyser: languages of texts, forms of words, parts of compounds; saved, one by one, and with their places."""

import sys

import pytest
from pydantic import ValidationError
from Stemmer import Stemmer

from unidex.config import Features as Settings
from unidex.errors import MissingExtraError, ModelError
from unidex.features.analyser import PLAIN, Analyser
from unidex.features.compounds import parts_of_compounds, split_compound
from unidex.features.extractor import FeatureExtractor
from unidex.features.languages import detect
from unidex.features.word_rows import places_of_words, word_rows
from unidex.features.word_strings import words_in
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.lexical_columns import Reading

SENTENCES = {
    "cs": "Kniha je na stole a není to moje",
    "da": "Bogen ligger på bordet, og den er ikke min",
    "de": "Die Bücher der Bibliothek sind auf dem Tisch",
    "en": "The books of the library are on the table",
    "es": "Los libros de la biblioteca son para el público",
    "et": "Raamatud on laual ja see ei ole minu oma",
    "fi": "Kirjat ovat pöydällä, mutta kirjasto on kiinni",
    "fr": "Les livres de la bibliothèque sont sur la table",
    "hu": "A könyv az asztalon van, és ez nem az enyém",
    "it": "I libri della biblioteca sono per gli studenti",
    "lt": "Knyga yra ant stalo ir tai ne mano",
    "nl": "De boeken van de bibliotheek zijn niet op de tafel",
    "pl": "Książka jest na stole i nie jest moja",
    "pt": "Os livros da biblioteca não são para o público",
    "ro": "Cărțile din bibliotecă sunt pe masă și nu în raft",
    "ru": "Книги на столе, но это не мои",
    "sv": "Böckerna är på bordet och det är inte mina",
    "tr": "Bu kitap çok güzel ve bir masa için değil",
    "el": "Βιβλία",
    "ar": "مكتبة",
    "hi": "पुस्तकालय",
    "": "図書館 XML 42",
}


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_languages_are_told_by_common_words_and_scripts(language, text):
    assert detect(words_in(text)) == language
    assert detect(words_in(text.upper() if language != "tr" else text)) == language


GERMAN = ["Die Stadtbibliothek ist für das Bibliothekswesen der Stadt", "Das Wesen der Bibliothek ist eine Stadt"] * 3
ENGLISH = ["The libraries of the cities are running", "A library and the running of the world"] * 2
LABELS = ["Bibliotheken", "libraries", "Stadt"]
AUTO = Settings(min_df=1, chars=True, num_buckets=16, language="auto", lead_weight=1.0, lead=2, compounds=True)
MIXED = [*GERMAN, *ENGLISH]


def test_each_text_has_the_stems_of_its_language_and_a_short_one_those_of_its_words():
    found = Analyser.fit(MIXED, LABELS, AUTO)
    assert (found.main, found.languages) == ("de", ("de", "en"))
    de, en = Stemmer("german").stemWord, Stemmer("english").stemWord
    assert found.texts(["the running of libraries", "die Bibliotheken", "running", "Welten"]) == [
        " ".join(map(en, ["the", "running", "of", "libraries"])),
        " ".join(map(de, ["die", "bibliotheken"])),
        en("running"),
        de("welten"),
    ]
    assert en("running") != de("running")


def test_parts_of_compounds_follow_the_compound():
    found = Analyser.fit(MIXED, LABELS, AUTO.model_copy(update={"analyser": "words"}))
    assert found.texts(["Die Stadtbibliothek der Welt"]) == ["Die Stadtbibliothek stadt bibliothek der Welt"]
    assert found.of_labels.texts(["Stadtbibliothek"]) == ["Stadtbibliothek"]
    # English has no such compounds.
    assert found.texts(["the stadtbibliothek of the city"]) == ["the stadtbibliothek of the city"]
    assert parts_of_compounds(["kurz hase", "hase x2y4 hase", "hase x2y4", "x2y4"]) == ("hase",)
    assert split_compound("bienenstockhase", {"bienen", "stock", "bienenstock", "hase", "stockhase"}, "de") == (
        "bienen",
        "stockhase",
    )


def test_rows_of_one_text_are_those_of_many_also_after_loading(tmp_path):
    features = FeatureExtractor.fit(MIXED, LABELS, AUTO)
    features.save(tmp_path)
    loaded = FeatureExtractor.load(tmp_path)
    assert loaded.analyser == features.analyser
    assert loaded.fingerprint == features.fingerprint
    texts = [*MIXED, "cities", "Bibliothekswesen", "", "getHTTPPort_2 ..."]
    whole = features.transform(texts)
    assert (loaded.transform(texts) != whole).nnz == 0
    assert (loaded.transform_few(texts) != whole).nnz == 0
    text = "Die Stadtbibliothek"
    placed = features.placed(text)
    found = {
        (features.name(feature), *at) for feature, *at in zip(placed.features, placed.starts, placed.ends, strict=True)
    }
    assert {("stadtbibliothek", 4, 19), ("stadt", 4, 19), ("bibliothek", 4, 19)} <= found
    assert places_of_words(features, text, 9) == [(0, 3), (4, 19), (4, 19), (4, 19)]
    assert word_rows(features, [text], 9).lengths.tolist() == [4]


def test_the_lexical_part_reads_as_the_features_do(tmp_path):
    analyser = Analyser.fit(MIXED, LABELS, AUTO)
    part = LexicalPart.of(LABELS, reading=Reading(analyser))
    part.save(tmp_path / "lexical")
    texts = ["Die Stadtbibliothek", "the library", "library"]
    for each in (part, LexicalPart.load(tmp_path / "lexical", LABELS)):
        # Few texts are read word by word, many by array operations.
        assert (each.rows(texts) != each.rows(texts * 9)[:3]).nnz == 0
        assert each.matches.find(texts).places_NL.indices.tolist() == [0, 2, 1, 1]


def test_models_of_earlier_versions_have_a_language_and_its_stems(tmp_path):
    assert Analyser.read(None, "fi") == Analyser("stems", "fi")
    assert Analyser.read(None) == PLAIN
    features = FeatureExtractor.fit(MIXED, LABELS, AUTO)
    features.save(tmp_path)
    file = tmp_path / "features.json"
    file.write_text(file.read_text().replace('"forms": "stems"', '"forms": "roots"'))
    with pytest.raises(ModelError, match="settings must be whole"):
        FeatureExtractor.load(tmp_path)


def test_lemmas_replace_words():
    pytest.importorskip("simplemma")
    assert Analyser("lemmas", "en").texts(["The mice WERE"]) == ["the mouse be"]


def test_lemmas_need_their_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "simplemma", None)
    with pytest.raises(MissingExtraError, match="languages"):
        Analyser("lemmas", "en").texts(["mice"])


def test_compounds_need_a_language():
    with pytest.raises(ValidationError, match="compounds are those of a language"):
        Settings(compounds=True)


def test_words_stay_as_they_are_where_nothing_tells_a_language():
    found = Analyser.fit(["XML 1", "图书"], ["42"], AUTO)
    assert found.is_plain
    assert found.texts(["The Books"]) == ["The Books"]
    assert Analyser.fit(MIXED, LABELS, AUTO.model_copy(update={"analyser": "auto"})) == PLAIN
