"""CPU time and memory of loading a model against its number of labels.

    python benchmarks/loading.py FOLDER --labels 1000000 10000000 100000000 [--rank learned] > table.md
    python benchmarks/loading.py FOLDER --labels 1000000 --rank learned --beside-memory > table.md

Training so many labels takes hours, and loading depends on the sizes of files alone. So a small model is trained on a
generated set (benchmarks/scale_set.py), and its labels and its index (kind disk, 64 numbers per label) are replaced by
files of the right form and size: the label texts of a set of that size, random codes, vectors of zeros in a file that
takes no disk. With the learned ranker, the words of all labels are put into files as in training; "words" is the CPU
time of that and the highest memory. Predictions of such a model mean nothing.

Each model is loaded in a process of its own, imports included, and predicts the labels of single texts: "first" after
the load, "next" as the mean of ten others. Memory is what the system cannot take back and, apart from it, pages of
files, which it can.

With --beside-memory, each model predicts with the words of its labels in files and then in memory, as models of fewer
labels have them: 256 texts at once and one at a time, each made of two label texts. CPU milliseconds per text, the
median of three rounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from plan import PhaseUsage
from scale import SETTINGS
from scale_set import NUM_TOPICS, ScaleSet, word_letters, write_set, write_texts

DIM = 64
MAX_WORDS = 1_000_000  # words of labels that the vocabulary lacks
LEARNED = ["predict.rank=learned", "train.validation=0.1"]
ROUNDS, AT_ONCE, SINGLE = 3, 256, 50
BESIDE = ("labels", "256 texts, in files", "one text", "256 texts, in memory", "one text")
COLUMNS = (
    "labels",
    "words, CPU s",
    "MB",
    "load, CPU s",
    "load, s",
    "MB",
    "MB of files",
    "first text, CPU ms",
    "next text, CPU ms",
    "MB",
    "MB of files",
)


def write_model(folder: Path, base: Path, number: int) -> dict[str, float]:
    """A model folder like ``base`` of another number of labels; what the words of labels took."""
    from unidex.model import folder as folders

    shutil.copytree(base, folder)
    (folder / "labels.jsonl").unlink()
    (folder / "labels").mkdir()
    _write_labels(folder / "labels", number)
    _write_index(folder / "index", number)
    taken = _write_words(folder, number) if (folder / "lexical").exists() else {}
    manifest = {"format": folders.FORMAT, "files": folders._hashes(folder)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return taken


def _write_labels(folder: Path, number: int) -> None:
    scale = ScaleSet(number, 1)
    write_texts(folder / "texts", number, scale.label_words, word_letters(NUM_TOPICS + scale.num_words))
    frequencies = np.lib.format.open_memmap(folder / "frequencies.npy", mode="w+", dtype=np.int64, shape=(number,))
    frequencies[:] = 1
    np.save(folder / "removed.npy", np.zeros(number, dtype=bool))
    (folder / "concepts.jsonl").touch()
    words = np.random.default_rng(1).integers(1 << 62, size=min(number, MAX_WORDS), dtype=np.uint64)
    np.save(folder / "words.npy", np.unique(words))


def _write_words(folder: Path, number: int) -> dict[str, float]:
    """The words of labels as training writes them; the kNN part keeps its few texts and knows of more labels."""
    from unidex.data.texts import Texts
    from unidex.scoring.lexical import LexicalPart

    texts = Texts.load(folder / "labels" / "texts", checked_up_to=0)
    shutil.rmtree(folder / "lexical")
    usage, started = PhaseUsage(), time.process_time()
    LexicalPart.of(texts, scratch=folder.parent).save(folder / "lexical")
    taken = {"seconds": time.process_time() - started, "mb": usage.highest / 1e6}
    file = folder / "neighbours" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["settings"]["num_labels"] = number
    file.write_text(json.dumps(manifest))
    return taken


def _write_index(folder: Path, number: int) -> None:
    from unidex.index.disk import DiskIndex
    from unidex.index.disk_lists import num_lists
    from unidex.index.faiss_library import library
    from unidex.index.mapped_lists import BLOCK, BLOCKS, LISTS, SIZES

    faiss, rng = library(), np.random.default_rng(0)
    shutil.rmtree(folder)
    # Few vectors, for the manifest and the codebooks; all that grows is made anew.
    vectors = rng.standard_normal((5_000, DIM)).astype(np.float32)
    DiskIndex.build(vectors).save(folder)
    codebooks = faiss.vector_to_array(faiss.read_index(str(folder / LISTS)).pq.centroids)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"num_ids": number, "num_coded": number}))
    for name in (BLOCKS, LISTS, SIZES, "vectors.npy"):
        (folder / name).unlink()
    np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(number, DIM))
    centres = rng.standard_normal((num_lists(number), DIM)).astype(np.float32)
    coarse = faiss.IndexFlatIP(DIM)
    coarse.add(centres / np.linalg.norm(centres, axis=1, keepdims=True))
    empty = faiss.IndexIVFPQ(coarse, DIM, len(centres), DIM // 2, 4, faiss.METRIC_INNER_PRODUCT)
    empty.by_residual, empty.is_trained = False, True
    faiss.copy_array_to_vector(codebooks, empty.pq.centroids)
    faiss.write_index(faiss.IndexIVFPQFastScan(empty), str(folder / LISTS))
    sizes = rng.multinomial(number, np.full(len(centres), 1 / len(centres)))
    np.save(folder / SIZES, sizes)
    first = 0
    with (folder / BLOCKS).open("wb") as file:
        for size in sizes.tolist():
            file.write(rng.bytes((size + -size % BLOCK) * DIM // 4))
            file.write(np.pad(np.arange(first, first + size), (0, -size % BLOCK)).tobytes())
            first += size


# Texts with words of some labels.
TEXTS = [f"{first}abe mabe gufo babe bidi tulolu" for first in "dfgklnprstz"]


def measure(folder: Path) -> list[float]:
    """Load a model in this process, and predict."""
    started = time.process_time(), time.monotonic()
    from unidex.verbs.models import load_model

    texts = iter(TEXTS)
    model = load_model(folder, "cpu")
    found = [time.process_time() - started[0], time.monotonic() - started[1], *_memory()]
    for repeats in (1, 10):
        before = time.process_time()
        for _ in range(repeats):
            model.predict([next(texts)], k=10)
        found.append(1000 * (time.process_time() - before) / repeats)
    return [*found, *_memory()]


def beside_memory(folder: Path) -> list[float]:
    """CPU milliseconds per text with words of labels in files and in memory: of many texts, and of single ones."""
    from unidex.scoring import lexical, mapped_matches
    from unidex.verbs.models import load_model

    model = load_model(folder, "cpu")
    label_texts, rng = model.labels.texts, np.random.default_rng(0)
    drawn = rng.integers(0, len(label_texts), (ROUNDS + 1, AT_ONCE, 2)).tolist()
    blocks = [[f"{label_texts[one]} {label_texts[other]}" for one, other in pairs] for pairs in drawn]

    def milliseconds(blocks: list[list[str]]) -> float:
        started = time.process_time()
        for block in blocks:
            model.predict(block, k=10)
        return 1000 * (time.process_time() - started) / sum(map(len, blocks))

    found = []
    for is_mapped in (True, False):
        if not is_mapped:
            lexical.MAPPED_ABOVE = mapped_matches.MAPPED_ABOVE = 1 << 62
            model.scorer.lexical = lexical.LexicalPart.of(list(label_texts))
        first, *others = blocks
        milliseconds([first])
        found.append(statistics.median(milliseconds([block]) for block in others))
        found.append(statistics.median(milliseconds([[text] for text in block[:SINGLE]]) for block in others))
    return found


def _memory() -> tuple[float, float]:
    """Megabytes of this process: its own, and pages of files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) / 1000, int(status["RssFile"].split()[0]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--rank", choices=("sum", "learned"), default="sum")
    parser.add_argument("--beside-memory", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.beside_memory and options.rank != "learned":
        parser.error("--beside-memory compares words of labels, which --rank learned reads")
    if options.measure:
        print(json.dumps((beside_memory if options.beside_memory else measure)(options.folder)))
        return
    base = options.folder / f"base-{options.rank}"
    if not (base / "model").exists():
        from unidex.verbs.train import train

        logging.disable()
        write_set(base / "set", ScaleSet(10_000, 10_000))
        train(base / "set", settings=SETTINGS + LEARNED * (options.rank == "learned"), out=base / "model")
    columns = BESIDE if options.beside_memory else COLUMNS
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---:|' * len(columns)}")
    for number in options.labels:
        folder = options.folder / f"{number}-{options.rank}"
        taken: dict[str, float] = {}
        if not folder.exists():
            taken = write_model(folder, base / "model", number)
        command = [sys.executable, __file__, str(folder), "--measure", "--rank", options.rank]
        command += ["--beside-memory"] * options.beside_memory
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        if options.beside_memory:
            print(f"| {number:,} | {' | '.join(f'{value:.2f}' for value in json.loads(done.stdout))} |", flush=True)
            continue
        cells = [
            f"{value:,.{digits}f}"
            for value, digits in zip(json.loads(done.stdout), (1, 1, 0, 0, 0, 0, 0, 0), strict=True)
        ]
        words = [f"{taken[name]:,.0f}" if taken else "" for name in ("seconds", "mb")]
        print(f"| {number:,} | {' | '.join(words + cells)} |", flush=True)


if __name__ == "__main__":
    main()
