"""What is read of long texts: their first words, all words, headings again, chunks with pooled scores.

    python benchmarks/manual_pages.py /usr/share/man --out pages
    python benchmarks/long_texts.py pages --seeds 2 [--variants whole,first-300]

A quarter of the train texts is judged, drawn by a seed; test texts are not read. Each model is ``auto``. Chunks are
predicted by the model of whole texts, and the probability of a label is the maximum or the mean over chunks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from scipy import sparse

from unidex.data.dataset import Dataset, Split
from unidex.data.formats import read
from unidex.data.texts import Texts
from unidex.features import extractor
from unidex.features.lead import lead_of
from unidex.model.model import Model
from unidex.scoring import lexical
from unidex.topk import TopK
from unidex.verbs.evaluate import evaluate, score_places
from unidex.verbs.judgement import judge
from unidex.verbs.train import train

_SHOWN = ("P@1", "P@5", "nDCG@5", "PSP@5")
_CHUNK_WORDS = 300
_PLACES = 100  # labels per chunk whose probabilities are pooled
Row = list[float]  # the values of _SHOWN, then CPU seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variants", default=",".join(_VARIANTS))
    asked = parser.parse_args()
    dataset = read(asked.data)
    order = np.random.default_rng(7).permutation(len(dataset.train))
    held_out, rest = order[: len(order) // 4], order[len(order) // 4 :]
    dataset = replace(dataset, train=dataset.train.take(rest), test=dataset.train.take(held_out))
    print("| read of a text | " + " | ".join(_SHOWN) + " | nDCG@5 per seed | CPU s |")
    print("|---|" + "---|" * (len(_SHOWN) + 2))
    for variant in asked.variants.split(","):
        rows: dict[str, list[Row]] = {}
        for seed in range(asked.seeds):
            for name, row in _VARIANTS[variant](dataset, seed):
                rows.setdefault(name, []).append(row)
        for name, found in rows.items():
            *means, cpu = np.mean(found, axis=0)
            seeds = " ".join(f"{row[2]:.1f}" for row in found)
            print(f"| {name} | {' | '.join(f'{mean:.1f}' for mean in means)} | {seeds} | {cpu:.0f} |", flush=True)


def _trained(name: str, dataset: Dataset, seed: int, *settings: str) -> Iterator[tuple[str, Row]]:
    started = time.process_time()
    scores = train(dataset, "auto", seed=seed, settings=settings).metrics["test"]
    yield name, [*(scores[shown] for shown in _SHOWN), time.process_time() - started]


def _first_words(dataset: Dataset, seed: int) -> Iterator[tuple[str, Row]]:
    def cut(split: Split) -> Split:
        return replace(split, texts=Texts.of([" ".join(text.split()[:_CHUNK_WORDS]) for text in split.texts]))

    short = replace(dataset, train=cut(dataset.train), test=cut(dataset.test))
    yield from _trained(f"the first {_CHUNK_WORDS} words", short, seed)


def _chunks(dataset: Dataset, seed: int) -> Iterator[tuple[str, Row]]:
    """The whole text, and the probabilities of its chunks."""
    started = time.process_time()
    model = train(replace(dataset, test=None), "auto", seed=seed)
    middle = time.process_time()
    whole = evaluate(model, dataset, split="test").metrics
    yield "the whole text", [*(whole[name] for name in _SHOWN), time.process_time() - started]
    judged = judge(model, dataset, split="test")
    pooled = _pooled(model, list(judged.split.texts))
    for name, topk in pooled.items():
        scores = score_places(topk, judged.split, judged.frequencies_L, judged.num_train, judged.propensity, limit=10)
        yield name, [*(scores.metrics[shown] for shown in _SHOWN), time.process_time() - middle]


def _pooled(model: Model, texts: list[str]) -> dict[str, TopK]:
    words_of_texts = [text.split() or [""] for text in texts]
    starts = [range(0, len(words), _CHUNK_WORDS) for words in words_of_texts]
    chunks = [
        " ".join(words[start : start + _CHUNK_WORDS])
        for words, own in zip(words_of_texts, starts, strict=True)
        for start in own
    ]
    counts = np.array([len(own) for own in starts])
    found = model.topk(chunks, _PLACES)
    text_of_chunk = np.repeat(np.arange(len(texts)), counts)
    rows = np.repeat(text_of_chunk, found.ids.shape[1])
    is_label = found.ids.ravel() >= 0
    rows, ids, scores = rows[is_label], found.ids.ravel()[is_label], found.scores.ravel()[is_label]
    best, mean = ({}, {})  # type: dict[tuple[int, int], float], dict[tuple[int, int], float]
    for row, label, score in zip(rows.tolist(), ids.tolist(), scores.tolist(), strict=True):
        best[row, label] = max(best.get((row, label), 0.0), score)
        mean[row, label] = mean.get((row, label), 0.0) + score / counts[row]
    shape = (len(texts), len(model.labels))
    names = {f"chunks of {_CHUNK_WORDS} words, maximum": best, f"chunks of {_CHUNK_WORDS} words, mean": mean}
    return {
        name: TopK.from_csr(sparse.csr_array((list(of.values()), tuple(np.array(list(of)).T)), shape=shape), 100)
        for name, of in names.items()
    }


def _with_headings(dataset: Dataset, seed: int) -> Iterator[tuple[str, Row]]:
    def lead_and_headings(text: str, num_words: int) -> str | None:
        lead = lead_of(text, num_words)
        return None if lead is None else f"{lead} {headings_of(text)}"

    with _replaced(extractor, "lead_of", lead_and_headings):
        yield from _trained("first words and headings again", dataset, seed)


def _lexical_beginning(dataset: Dataset, seed: int) -> Iterator[tuple[str, Row]]:
    rows = lexical.LexicalPart.rows

    def first_rows(self: lexical.LexicalPart, texts: list[str]) -> sparse.csr_array:
        return rows(self, [text[:2000] for text in texts])

    with _replaced(lexical.LexicalPart, "rows", first_rows):
        yield from _trained("shared words of the first 2,000 characters", dataset, seed)


def headings_of(text: str) -> str:
    """Short lines between a blank line and the paragraph that they head."""
    lines = [line.strip() for line in text.split("\n")]
    found = []
    for before, line, after in zip(["", *lines], lines, lines[1:], strict=False):
        is_short = 0 < len(line.split()) <= 10 and line[-1] not in ".,;:!?" and not line[0].islower()
        if is_short and after and not before:
            found.append(line)
    return " ".join(found)


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


_VARIANTS: dict[str, Callable[[Dataset, int], Iterator[tuple[str, Row]]]] = {
    "first-300": _first_words,
    "chunks": _chunks,
    "lexical-2000": _lexical_beginning,
    "no-lead": lambda data, seed: _trained("nothing again", data, seed, "features.lead_weight=0"),
    "lead-300": lambda data, seed: _trained("the first 300 words again", data, seed, "features.lead=300"),
    "headings": _with_headings,
}

if __name__ == "__main__":
    main()
