"""Features of a text the slow way, one word, one part, one n-gram at a time, and texts and settings to compare with."""

import unicodedata
from itertools import pairwise

from hypothesis import strategies as st

from unidex.config import Features as FeatureSettings

TEXTS = [
    "SetupDiGetActualSectionToInstallExW function (setupapi.h)",
    "elpa-golden-ratio: automatic resizing of Emacs windows to the golden ratio",
    "rust: src test ui-fulldeps internal-lints pass_ty_by_ref.rs",
    "`prefers-reduced-motion` CSS media feature, a CSS feature",
    "",
    "Blücher, Gebhard Leberecht von, 1742-1819 \U0001f600",
    "हिन्दी में लिखा, 日本語 ΟΔΟΣ οδος",
    "x86_64 getHTTPPort2 IPv6 __init__",
    "...",
]
LABELS = ["golden ratio", "Emacs windows", "Setup section", "pass by ref", "css", "Leberecht", "port", "x86"]


def settings_with(**changes):
    """Settings without buckets, unless they are among the changes."""
    return FeatureSettings(**{"num_buckets": 0, **changes})


EVERYTHING = settings_with(min_df=1, chars=True, subwords=True, num_buckets=16)


def naive_class(character):
    if character == "_":
        return "_"
    if character.isupper() or character.istitle():
        return "U"
    if character.islower():
        return "l"
    if character.isalpha() or character in "\u200c\u200d" or unicodedata.category(character)[0] == "M":
        return "o"
    return "d" if character.isalnum() else " "


def naive_fold(word):
    folded = []
    for character in word:
        forms = [form for form in (character.casefold(), character.lower()) if len(form) == 1]
        folded.append(forms[0] if forms else character.lower()[0])
    return "".join(folded)


def is_unspaced(character):
    """Han, Hiragana or Katakana by its name in Unicode: each such character is a word."""
    name = unicodedata.name(character, "")
    if 0x1A000 <= ord(character) < 0x20000:  # historic kana
        return False
    if "VOICED SOUND MARK" in name or "MIDDLE DOT" in name or "DOUBLE HYPHEN" in name:
        return False
    kinds = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC ITERATION")
    return name.startswith((*kinds, "IDEOGRAPHIC NUMBER ZERO")) and character.isalnum()


def naive_words(text):
    text = unicodedata.normalize("NFKC", text)
    text = "".join(f" {character} " if is_unspaced(character) else character for character in text)
    return "".join(character if naive_class(character) != " " else " " for character in text).split()


def naive_parts(word):
    parts, part = [], ""
    for place, character in enumerate(word):
        kind = naive_class(character)
        last = naive_class(word[place - 1]) if place else "_"
        following = naive_class(word[place + 1]) if place + 1 < len(word) else " "
        begins = (kind == "d") != (last == "d") or (kind == "U" and (last != "U" or following == "l"))
        if kind == "_" or begins:
            parts.append(part)
            part = ""
        if kind != "_":
            part += character
    parts = [part for part in [*parts, part] if part]
    return [] if parts == [word] else parts


def naive_features(text, settings):
    """(kind, name) of every occurrence."""
    words = naive_words(text)
    found = [("word", naive_fold(word)) for word in words]
    if settings.parts:
        found += [("part", naive_fold(part)) for word in words for part in naive_parts(word)]
    if settings.bigrams:
        found += [("bigram", f"{naive_fold(a)} {naive_fold(b)}") for a, b in pairwise(words)]
    if settings.chars:
        for word in words:
            marked = f"#{naive_fold(word)}#"
            for n in range(settings.chars_min, settings.chars_max + 1):
                for start in range(len(marked) - n + 1):
                    gram = marked[start : start + n]
                    if gram == marked:
                        continue
                    head, tail = "" if gram[0] == "#" else "*", "" if gram[-1] == "#" else "*"
                    found.append(("char", head + gram.strip("#") + tail))
    return found


some_text = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="abAB1_ -", max_size=30),
    st.lists(st.sampled_from(TEXTS + LABELS), max_size=3).map(" ".join),
)
some_settings = st.builds(
    settings_with,
    parts=st.booleans(),
    bigrams=st.booleans(),
    chars=st.booleans(),
    chars_min=st.integers(2, 3),
    chars_max=st.integers(3, 5),
    min_df=st.integers(1, 3),
)
