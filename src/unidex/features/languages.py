"""The language of a text: the one whose common words it has most.

A word that several languages have counts less for each. A text in a script that one language of the list has is in
that language. Nothing is loaded, and a short text takes a few microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

# Frequent words without a subject, by tag of the language.
_COMMON = {
    "ca": "el la els les un una i que de del dels al als amb per és són no va ser com més aquest aquesta entre seva",
    "cs": "a je se na v to že s z do o jako za by ale pro jsou který která které není nebo jeho podle při byl až",
    "da": "og i at det er en til af på for med den der de som ikke et har fra ved kan eller blev sig også om efter",
    "de": "der die das und ist von mit für den des im in auf ein eine einer eines werden wird nicht auch zur zum aus "
    "bei dem sich als an nach wie über oder sind durch wurde kann",
    "en": "the of and in is to for with on that this are by as an from be which or at it was has have not can its how",
    "es": "el la los las un una y que de del en con por para es son no se su al como más este esta entre sobre fue",
    "et": "ja on ei et see oma kui ka mis oli aga ning või selle seda kes nii välja pärast saab tema ta",
    "fi": "ja on ei että se oli kun myös joka mutta ovat voi tai hän kuin sekä en ole mitä siitä sen niin jos onko "
    "olisi mikä tämä tästä minä",
    "fr": "le la les et des du de une un est dans pour que qui sur au aux par avec ce cette ne pas sont il elle ou "
    "plus leur été",
    "hu": "a az és hogy nem is egy meg ez van volt de csak vagy mint már ki még el azt minden ha amely kell",
    "it": "il lo la gli le un una e che di del della dei delle in con per è sono non si su al come più questo tra nel",
    "lt": "ir yra į kad su iš o tai kaip jo buvo ne dėl už bet ar apie nuo jų jos taip šis arba",
    "nl": "de het een en van in is dat op te voor met zijn niet aan er om ook als bij door naar wordt worden werd uit",
    "no": "og i det er en til av på for med den som de ikke et har fra ved kan eller ble seg også om etter",
    "pl": "i w na nie się z do to że jest o jak za po od jego dla przez jako są oraz który która które był lub tym",
    "pt": "o a os as um uma e que de do da dos das em no na com por para é são não se seu ao como mais este foi pelo",
    "ro": "și în de la cu pe care este sunt nu un o din pentru mai că prin sau al ale fost între acest",
    "ru": "и в не на что с по как это а из у за от о к для но при был или также его она они",  # noqa: RUF001
    "sv": "och att det som en är på för av med den till inte om ett har de i kan eller från vid sig också var efter",
    "tr": "ve bir bu için ile da de olarak olan en daha gibi çok ne kadar sonra değil ya veya olduğu",
}
# The first and last letter of scripts that one language of the stemmers has, apart from Russian, found by its words.
_SCRIPTS = (
    ("\u0370", "\u03ff", "el"),
    ("\u0400", "\u04ff", "ru"),
    ("\u0530", "\u058f", "hy"),
    ("\u0600", "\u06ff", "ar"),
    ("\u0900", "\u097f", "hi"),
    ("\u0b80", "\u0bff", "ta"),
)
# So many words tell a language; more cost time.
_MAX_WORDS = 100
ENGLISH = "en"


def _shares() -> dict[str, tuple[tuple[str, float], ...]]:
    having = defaultdict(list)
    for language, words in _COMMON.items():
        for word in sorted(set(words.split())):
            having[word].append(language)
    return {word: tuple((language, 1 / len(found)) for language in found) for word, found in having.items()}


_SHARES = _shares()


def detect(words: Sequence[str]) -> str:
    """The tag of the language of words; empty where none of them tells.

    >>> detect("What is the capital of Peru".split()), detect("Wie heißt die Hauptstadt von Peru".split())
    ('en', 'de')
    >>> detect("Mikä on Perun pääkaupunki".split()), detect(["Лима"]), detect(["Lima"])
    ('fi', 'ru', '')
    >>> detect("tools for networks".split())
    'en'
    """
    some = words[:_MAX_WORDS]
    scores: dict[str, float] = {}
    for word in some:
        for language, share in _SHARES.get(word.lower(), ()):
            scores[language] = scores.get(language, 0.0) + share
    if scores:
        # Of equal ones English, which most texts are in ("for" is Danish too), then the first in the alphabet.
        return min(scores, key=lambda language: (-scores[language], language != ENGLISH, language))
    for word in some:
        if word > "\u036f":
            for first, last, language in _SCRIPTS:
                if first <= word[0] <= last:
                    return language
    return ""
