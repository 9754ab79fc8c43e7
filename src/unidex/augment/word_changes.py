"""Changed copies of train texts, the usual augmentation of texts: words left out, or synonyms in their place.

They are here to be compared with; label texts (label_points.py) help more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unidex import progress
from unidex.augment.extended_split import joined
from unidex.augment.masked_words import MASKED, replace_masked
from unidex.data.dataset import Dataset, Split
from unidex.data.files import lines
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.errors import ConfigError, DataError, quoted

WORD_METHODS = ("word-dropout", "synonyms")
WORDLLAMA = "wordllama"

# What a random choice is for; part of its seed, so that no two draw the same numbers.
_DROP, _REPLACE = range(111, 113)
_WORD = re.compile(r"\w+")
# All pairs of words are compared; and rare words are often slips, which no word should become.
_MAX_WORDS = 20_000
_MIN_COUNT = 5
_NUM_SYNONYMS = 3
_MIN_COSINE = 0.4


def drop_words(texts: Sequence[str], share: float, seed: int) -> list[str]:
    """Each text without about ``share`` of its words; a text that has words keeps at least one.

    A word is what stands between spaces; what is left is joined by one space.

    >>> drop_words(["red straw hat of wool", "", "hat"], 0.4, seed=0)
    ['red of', '', 'hat']
    """
    _check_share(share)
    rng = np.random.default_rng([seed, _DROP])
    changed = []
    with progress.task("leaving words out", len(texts), unit="texts") as advance:
        for text in texts:
            words = text.split()
            draws = rng.random(len(words))
            if words:
                # The highest draw stays whatever the share is.
                draws[draws.argmax()] = 1
            changed.append(" ".join(word for word, draw in zip(words, draws.tolist(), strict=True) if draw >= share))
            advance(1)
    return changed


def replace_words(texts: Sequence[str], synonyms: Mapping[str, Sequence[str]], share: float, seed: int) -> list[str]:
    """Each text with about ``share`` of those words replaced that have a synonym; which one is drawn evenly.

    A word is a run of letters, digits and underscores; what stands between words stays.

    ``synonyms`` has, for a word in lower case, at least one synonym.

    >>> replace_words(["Red hat, red shoe"], {"red": ["crimson"]}, 1.0, seed=0)
    ['crimson hat, crimson shoe']
    """
    _check_share(share)
    rng = np.random.default_rng([seed, _REPLACE])

    def other(match: re.Match[str]) -> str:
        found = synonyms.get(match[0].lower())
        if found is None:
            return match[0]
        draw, choice = rng.random(2).tolist()
        return found[int(choice * len(found))] if draw < share else match[0]

    changed = []
    with progress.task("replacing words", len(texts), unit="texts") as advance:
        for text in texts:
            changed.append(_WORD.sub(other, text))
            advance(1)
    return changed


def read_synonyms(file: Path) -> dict[str, list[str]]:
    """A file of synonyms: on a line a word and then its synonyms, between spaces."""
    synonyms: dict[str, list[str]] = {}
    for number, line in lines(file):
        word, *others = line.split() or [""]
        if not others:
            raise DataError(
                f"a line must be a word and at least one synonym of it, but is {quoted(line)}; mend or drop the line",
                file=file,
                line=number,
            )
        synonyms.setdefault(word.lower(), []).extend(others)
    if not synonyms:
        raise DataError("a file of synonyms must have a line, but has none", file=file)
    return synonyms


def nearest_words(texts: Sequence[str]) -> dict[str, list[str]]:
    """For the most frequent words of the texts, the nearest others among them by the vectors inside wordllama.

    At most 20,000 words of letters that occur five times or more, and of each the three nearest whose cosine is above
    0.4; what all vectors have in common is taken off first.
    """
    from unidex.index.exact import search_exact
    from unidex.nn.static_vectors import feature_vectors
    from unidex.nn.token_vectors import read_token_vectors

    try:
        known = read_token_vectors(WORDLLAMA)
    except ConfigError:
        raise ConfigError(
            "--synonyms wordllama needs the package wordllama, which must be installed, but is not: "
            "pip install wordllama, or give a file of synonyms"
        ) from None
    counts = Counter(word for text in texts for word in _WORD.findall(text.lower()) if word.isalpha())
    words = [word for word, count in counts.most_common(_MAX_WORDS) if count >= _MIN_COUNT]
    vectors, found = feature_vectors(words, known)
    vectors -= known.vectors.mean(axis=0)
    lengths = np.linalg.norm(vectors, axis=1)
    usable = np.flatnonzero(found & (lengths > 0))
    vectors = vectors[usable] / lengths[usable, None]
    # A word is its own nearest; words that are the same tokens may come before it.
    nearest = search_exact(vectors, vectors, min(_NUM_SYNONYMS + 1, len(usable)))
    synonyms = {}
    for at, (ids, cosines) in enumerate(zip(nearest.ids.tolist(), nearest.scores.tolist(), strict=True)):
        near = [words[usable[other]] for other, cosine in zip(ids, cosines, strict=True) if cosine > _MIN_COSINE]
        others = [word for word in near if word != words[usable[at]]][:_NUM_SYNONYMS]
        if others:
            synonyms[words[usable[at]]] = others
    return synonyms


def with_copies(dataset: Dataset, method: str, share: float, synonyms: str, seed: int) -> Dataset:
    """A data set with one changed copy of every train text behind the train texts.

    A copy has the positives and the filter pairs of its text. Labels, test texts and propensity constants stay; score
    with the original data set, because in this one every label is twice as frequent.

    ``synonyms`` is a file of synonyms, "wordllama" for the nearest words by the vectors inside that package, or
    "mlm:MODEL" for what a masked language model expects in a word's place. The same seed gives the same copies.
    """
    train = dataset.train
    if train.features is not None or not train.texts.num_bytes:
        raise DataError(f"data set {quoted(dataset.name)} must have texts to change, but has none or sparse features")
    _check_share(share)
    titles, contents = zip(*train.texts.fields(), strict=True)
    fields = [*titles, *contents]
    if method == "word-dropout":
        changed = drop_words(fields, share, seed)
    elif synonyms.startswith(MASKED):
        changed = replace_masked(fields, synonyms.removeprefix(MASKED), share, seed)
    else:
        table = nearest_words(fields) if synonyms == WORDLLAMA else read_synonyms(Path(synonyms))
        changed = replace_words(fields, table, share, seed)
    packer = Packer()
    packer.add_pairs(changed[: len(train)], changed[len(train) :])
    names = [str(row) for row in range(len(train))] if train.uids is None else list(train.uids)
    copies = Split.of(Texts.packed(packer), train.positives, train.filter_pairs)
    return replace(dataset, name=f"{dataset.name}-{method}", train=joined(train, copies, names, f"{method}:"))


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of words to change must be from 0 to 1, but is {share:g}")
