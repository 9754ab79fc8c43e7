"""What stems, lemmas, parts of compounds and character n-grams bring on texts of other languages.

    python benchmarks/languages.py DATA --languages de,en --label-language en --work FOLDER [--labels vocabulary.tsv]

A tenth of the train texts is judged, drawn by a seed; test texts are not read. Every variant is the same data with
other words, and ``auto`` trains on it with and without character n-grams. The language of a text is that of whose
common words it has most. Needs ``snowballstemmer`` and, for lemmas, ``simplemma``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from peers_runs import UNIDEX, measured
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions

_WORD = re.compile(r"[^\W\d_]+")
_SNOWBALL = {"de": "german", "en": "english", "fi": "finnish", "fr": "french", "sv": "swedish"}
# Words that only texts of one of the languages have in such numbers.
_COMMON = {
    "de": "der die das und ist von mit für den des im auf eine ein werden nicht auch zur",
    "en": "the of and in is to for with on that this are by as an from be which",
    "fi": "ja on ei että se oli kun myös joka mutta ovat voi tai hän kuin sekä",
    "fr": "le la les et des du une est dans pour que qui sur au par avec ce",
    "sv": "och att det som en är på för av med den till inte om ett har",
}
_SETTINGS = {
    "words": ["features.chars=false"],
    "characters": [],
}
_SHOWN = ("P@1", "P@5", "F1@5", "nDCG@5", "PSP@5")
Analyser = Callable[[str, str], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--languages", required=True, help="languages of the texts, such as de,en")
    parser.add_argument("--label-language", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--variants", default="none,stems,lemmas,compounds")
    parser.add_argument("--features", default="words,characters")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-texts", type=int, default=10_000)
    asked = parser.parse_args()
    dataset = read(asked.data, ReadOptions(labels=asked.labels))
    languages = asked.languages.split(",")
    order = np.random.default_rng(0).permutation(len(dataset.train))[: asked.max_texts]
    held_out = len(order) // 10
    parts = {"test": dataset.train.take(order[:held_out]), "train": dataset.train.take(order[held_out:])}
    print("| words | features | " + " | ".join(_SHOWN) + " | CPU s |")
    print("|---|---|" + "---|" * (len(_SHOWN) + 1))
    for variant in asked.variants.split(","):
        folder = asked.work / variant
        if not (folder / "labels.jsonl").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            analyse = _ANALYSERS[variant](dataset)
            for name, split in parts.items():
                _write(folder / f"{name}.jsonl", _texts(split, dataset.labels, languages, analyse))
            labels = zip(map(dataset.labels.uid, range(dataset.num_labels)), dataset.labels.texts, strict=True)
            rows = ({"uid": uid, "text": analyse(text, asked.label_language)} for uid, text in labels)
            _write(folder / "labels.jsonl", rows)
        for features in asked.features.split(","):
            rows = [_trained(folder, f"{features}-{seed}", features, seed) for seed in range(asked.seeds)]
            means = [np.mean([row[name] for row in rows]) for name in _SHOWN]
            spread = np.std([row["P@1"] for row in rows])
            cells = " | ".join(f"{mean:.1f}" for mean in means)
            print(f"| {variant} | {features} | {cells} | {np.mean([row['cpu'] for row in rows]):.0f} |", flush=True)
            print(f"{variant} {features}: P@1 has a standard deviation of {spread:.2f}", file=sys.stderr)


def _trained(folder: Path, name: str, features: str, seed: int) -> dict[str, float]:
    result = folder / f"{name}.json"
    if not result.is_file():
        flags = [word for setting in _SETTINGS[features] for word in ("--set", setting)]
        model = folder / f"model-{name}"
        command = [*UNIDEX, "train", folder, "--out", model, "--json", "--seed", str(seed), *flags]
        used = measured(command, folder / name, {})
        result.write_text(json.dumps({**_test_scores(used.output), "cpu": used.cpu_s}))
    found: dict[str, float] = json.loads(result.read_text())
    return found


def _test_scores(output: str) -> dict[str, float]:
    found = json.loads(output)
    scores = found.get("test", found)
    return {name: scores[name] for name in _SHOWN}


def _texts(split: Split, labels: Labels, languages: Sequence[str], analyse: Analyser) -> Iterator[dict[str, object]]:
    positives = split.positives
    for row, text in enumerate(split.texts):
        ids = positives.indices[positives.indptr[row] : positives.indptr[row + 1]]
        yield {"text": analyse(text, _language(text, languages)), "labels": [labels.uid(label) for label in ids]}


def _language(text: str, languages: Sequence[str]) -> str:
    words = _WORD.findall(text.lower())
    return max(languages, key=lambda language: sum(word in _COMMON_SETS[language] for word in words))


_COMMON_SETS = {language: set(words.split()) for language, words in _COMMON.items()}


def _write(file: Path, rows: Iterator[dict[str, object]]) -> None:
    with file.open("w") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def _by_word(change: Callable[[str, str], str]) -> Analyser:
    known: dict[tuple[str, str], str] = {}

    def analyse(text: str, language: str) -> str:
        def changed(match: re.Match[str]) -> str:
            key = (match.group().lower(), language)
            if key not in known:
                known[key] = change(*key)
            return known[key]

        return _WORD.sub(changed, text)

    return analyse


def _stems() -> Analyser:
    import snowballstemmer

    stemmers = {language: snowballstemmer.stemmer(name) for language, name in _SNOWBALL.items()}
    return _by_word(lambda word, language: stemmers[language].stemWord(word))


def _lemmas() -> Analyser:
    import simplemma

    return _by_word(lambda word, language: simplemma.lemmatize(word, lang=language).lower())


def _compounds(dataset: Dataset) -> Analyser:
    """German compounds followed by their two parts, which must be words that several train texts have."""
    counts = Counter(word for text in dataset.train.texts for word in set(_WORD.findall(text.lower())))
    known = {word for word, count in counts.items() if count >= 3 and len(word) >= 4}

    def split(word: str, language: str) -> str:
        if language == "de" and len(word) >= 8:
            for cut in range(4, len(word) - 3):
                first, second = word[:cut], word[cut:]
                # Between the parts, German has letters that belong to neither.
                if second in known and any(first.removesuffix(link) in known for link in ("", "s", "es", "n", "en")):
                    return f"{word} {first} {second}"
        return word

    return _by_word(split)


_ANALYSERS: dict[str, Callable[[Dataset], Analyser]] = {
    "none": lambda _: lambda text, _: text,
    "stems": lambda _: _stems(),
    "lemmas": lambda _: _lemmas(),
    "compounds": _compounds,
}

if __name__ == "__main__":
    main()
