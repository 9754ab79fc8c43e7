"""Where unidex stands on hard variants of data sets: one table over sets and cells, against the best of the peers.

Run: python benchmarks/robustness.py FOLDER --peers ENVIRONMENTS --peers-scripts SCRIPTS [--sets MDNSeeAlso,hpo]
     [--cells tenth,ids] [--systems pecos,bonsai,unidex] [--max-texts 50000] [--max-test 3000] [--keep KEPT] > table.md
FOLDER holds data sets in the raw XC format; hpo is built in. All sets, cells and systems unless given. ENVIRONMENTS and
SCRIPTS are those of peers.py. --max-texts takes that many train texts at random first, and cells are made from these;
--max-test takes that many test texts.

all         the data set as it is
tenth       a tenth of the train texts
hundredth   a hundredth of the train texts
titles      titles without contents; left out where a data set has no contents
ids         label texts replaced by numbers without meaning; peers, which do not read them, are those of all
duplicates  30% of the train texts a second time
single      one label per text, drawn at random, in train and test

Test texts are the same in all cells. Each entry is unidex / the peer that is best in this metric, with the difference
and its standard error over the paired test texts. As the best of several peers is taken on test, the bar is a little
too high rather than too low. An entry is bold where unidex is behind by more than two standard errors.

What is in the folder of --keep is not run again, so that a stopped call continues; models and features are removed
after use. A peer that fails or needs more than --minutes of CPU time is left out and told: remove its file
NAME.failed to try again. After a change of unidex remove its folders, */unidex-*.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers import missing_peers
from peers_report import METRICS
from peers_runs import PREDICTIONS, UNIDEX, Bench, RunError, unidex_folder
from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.predictions import read_predictions
from unidex.metrics.propensity import inverse_propensity
from unidex.metrics.ranked_lists import LabelWeights, best_gains, binary, hits

CELLS = ("all", "tenth", "hundredth", "titles", "ids", "duplicates", "single")
SYSTEMS = ("pecos", "pecos+chars", "bonsai", "bonsai+chars", "ovr", "ovr+chars", "unidex")
_SHARES = {"tenth": 0.1, "hundredth": 0.01}
_REPEATED = 0.3
_WIDTH = 5
RawRow = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", type=names, help="with commas; all of FOLDER and hpo unless given")
    parser.add_argument("--cells", type=names, default=list(CELLS))
    parser.add_argument("--systems", type=names, default=list(SYSTEMS))
    parser.add_argument("--max-texts", type=int, help="train texts to take of each set")
    parser.add_argument("--max-test", type=int, help="test texts to take of each set")
    parser.add_argument("--peers", type=Path, help="the folder with one environment per peer")
    parser.add_argument("--peers-scripts", type=Path, help="the folder with the scripts that run the peers")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15, help="CPU minutes of any one process")
    parser.add_argument("--keep", type=Path, default=Path("runs/robustness"))
    chosen = parser.parse_args()
    for option, given, known in (("--cells", chosen.cells, CELLS), ("--systems", chosen.systems, SYSTEMS)):
        if not set(given) <= set(known):
            parser.error(f"{option} must be of {', '.join(known)}, but is {', '.join(given)}")
    problem = missing_peers(chosen.systems, chosen.peers, chosen.peers_scripts)
    if problem:
        parser.error(problem)
    sets = chosen.sets or sorted({file.parent.name for file in chosen.folder.glob("*/trn.json.gz")} | {"hpo"})
    failed: list[str] = []
    print(f"| set | cell | train texts | {' | '.join(METRICS)} |\n|---|---|---:|{'---:|' * len(METRICS)}", flush=True)
    num_behind = num_compared = 0
    for name in sets:
        for cell in chosen.cells:
            try:
                found = run_cell(name, cell, chosen, failed)
            except RunError as error:
                failed.append(f"{name}, {cell}: {error}")
                continue
            if found is None:
                continue
            num_texts, entries = found
            shown = " | ".join(entry.shown() for entry in entries)
            print(f"| {name} | {cell} | {num_texts:,} | {shown} |", flush=True)
            num_behind += sum(entry.is_behind for entry in entries)
            num_compared += sum(entry.difference is not None for entry in entries)
    print(f"\nunidex is behind by more than two standard errors in {num_behind} of {num_compared} comparisons.")
    if failed:
        print("\n".join(["", "Not in the table:", "", *(f"- {line}" for line in failed)]))


def names(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def run_cell(name: str, cell: str, chosen: argparse.Namespace, failed: list[str]) -> tuple[int, list[Entry]] | None:
    """Run what is not there yet of a cell and compare; None where the cell says nothing new."""
    keep = chosen.keep.resolve()
    original = found_source(name, chosen.folder, keep / "sets")
    has_contents = any(row.get("content") for row in rows(original / "trn.json.gz"))
    if cell == "titles" and not has_contents:
        return None
    text = "title+content" if has_contents and cell != "titles" else "title"

    def bench_of(kind: str) -> Bench:
        source = made(original, kind, keep / "sets", chosen.max_texts, chosen.max_test)
        max_cpu_s = math.ceil(60 * chosen.minutes)
        return Bench(str(source), text, keep, num_threads=chosen.threads, max_cpu_s=max_cpu_s, only_predictions=True)

    ours = bench_of("all" if cell == "titles" else cell)
    # Peers do not read label texts.
    theirs = bench_of("all") if cell == "ids" else ours
    predictions: dict[str, Path] = {}
    for system in chosen.systems:
        bench = ours if system == "unidex" else theirs
        folder = unidex_folder(chosen.recipe, chosen.settings) if system == "unidex" else system
        stopped = bench.folder / f"{system}.failed"
        try:
            if stopped.exists():
                raise RunError(stopped.read_text().strip())
            if system == "unidex":
                bench.unidex(chosen.recipe, chosen.settings, "unidex")
            else:
                bench.peer(system, chosen.peers.absolute(), chosen.peers_scripts.resolve())
            file = bench.folder / folder / PREDICTIONS
            if not file.exists():
                raise RunError(f"{file} must exist, but does not; remove its folder to run it again")
            predictions[system] = file
        except RunError as error:
            failed.append(f"{name}, {cell}, {system}: {error}")
            print(failed[-1], file=sys.stderr, flush=True)
            # A peer would fail the same way again; unidex is what gets mended.
            if system != "unidex":
                stopped.write_text(f"{error}\n")
        for model in [bench.folder / folder / "model", *(bench.folder / folder).glob("m_*")]:
            shutil.rmtree(model, ignore_errors=True)
    for features in theirs.folder.glob("tfidf*"):
        shutil.rmtree(features, ignore_errors=True)
    return ours.task.num_train, compare(read(str(ours.data)), predictions)


@dataclass(frozen=True)
class Entry:
    """One metric of one cell, in percent; None where a side was not run."""

    ours: float | None = None
    peer: float | None = None
    error: float = 0.0

    @property
    def difference(self) -> float | None:
        """How far unidex is ahead."""
        return None if self.ours is None or self.peer is None else self.ours - self.peer

    @property
    def is_behind(self) -> bool:
        """Whether unidex is behind by more than two standard errors."""
        return self.difference is not None and self.difference < -2 * self.error

    def shown(self) -> str:
        """As it stands in the table."""
        sides = " / ".join("-" if value is None else f"{value:.1f}" for value in (self.ours, self.peer))
        if self.difference is None:
            return sides
        text = f"{sides} ({self.difference:+.1f} ± {self.error:.1f})"
        return f"**{text}**" if self.is_behind else text


def compare(dataset: Dataset, predictions: dict[str, Path]) -> list[Entry]:
    """Put unidex beside the best peer, metric by metric."""
    shares = {system: gains(dataset, file) for system, file in predictions.items()}
    entries = []
    for metric in METRICS:
        values = {system: 100 * found[metric][0].sum() / found[metric][1].sum() for system, found in shares.items()}
        ours = values.pop("unidex", None)
        best = max(values, key=lambda system: values[system], default=None)
        error = (
            0.0 if best is None or ours is None else 100 * paired_error(shares["unidex"][metric], shares[best][metric])
        )
        entries.append(Entry(ours, None if best is None else values[best], error))
    return entries


def gains(dataset: Dataset, file: Path) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Of each metric, what each test text gains and what its best possible gain counts; the metric is sum / sum."""
    topk = read_predictions(file, dataset, "test").without(dataset.test.filter_pairs)
    truth = binary(dataset.test.positives)
    is_hit = hits(topk, truth)
    weights = LabelWeights.of(inverse_propensity(dataset.label_frequencies(), len(dataset.train), dataset.propensity))
    worth = np.where(is_hit, weights.values(np.where(is_hit, topk.ids, 0)), 0.0)
    best = best_gains(truth, weights, _WIDTH)
    found = {}
    for k in (1, 3, 5):
        found[f"P@{k}"] = is_hit[:, :k].sum(axis=1) / k, np.ones(len(truth.indptr) - 1)
        found[f"PSP@{k}"] = worth[:, :k].sum(axis=1), best[:, :k].sum(axis=1)
    return found


def paired_error(
    first: tuple[NDArray[np.float64], NDArray[np.float64]], second: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> float:
    """Standard error of the difference of two ratios of sums with one denominator, over the same texts.

    With denominators of 1 it is the standard error of the mean of paired differences: of 1, 0, 0, -1 it is the root of
    (2 / 3) / 4.

    >>> ones = np.ones(4)
    >>> round(paired_error((np.array([1.0, 0, 0, 0]), ones), (np.array([0, 0, 0, 1.0]), ones)), 4)
    0.4082
    """
    differences = first[0] - second[0]
    possible = first[1]
    residuals = differences - possible * (differences.sum() / possible.sum())
    num = len(residuals)
    return float(np.sqrt(num / max(num - 1, 1) * np.square(residuals).sum()) / possible.sum())


def found_source(name: str, folder: Path, target: Path) -> Path:
    """The folder of a data set in the raw XC format; the built-in one is converted once."""
    if name != "hpo":
        return folder / name
    source = target / name
    if not source.exists():
        subprocess.run([*UNIDEX, "convert", name, source, "--to", "xc-raw"], check=True, stdout=subprocess.DEVNULL)
    return source


def made(source: Path, cell: str, target: Path, max_texts: int | None, max_test: int | None = None) -> Path:
    """The folder of the data set of a cell, written where it is not there yet."""
    if cell == "all" and max_texts is None and max_test is None:
        return source
    sizes = (("", max_texts), ("test", max_test))
    result = target / ".".join([source.name, cell, *(f"{kind}{size}" for kind, size in sizes if size is not None)])
    if not result.exists():
        part = result.with_name(f"{result.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        write_cell(source, part, cell, max_texts, max_test)
        part.rename(result)
    return result


def write_cell(source: Path, target: Path, cell: str, max_texts: int | None, max_test: int | None) -> None:
    """A variant of a data set in the raw XC format; the same for the same data set."""
    rng = np.random.default_rng(0)
    target.mkdir(parents=True)
    train, test, labels = (rows(source / f"{split}.json.gz") for split in ("trn", "tst", "lbl"))
    # A generator of its own, so that all cells have the same test texts.
    tested = np.sort(np.random.default_rng(1).permutation(len(test))[:max_test])
    test = [test[row] for row in tested.tolist()]
    chosen = np.sort(rng.permutation(len(train))[:max_texts])
    if cell in _SHARES:
        chosen = np.sort(rng.permutation(chosen)[: max(round(_SHARES[cell] * len(chosen)), 1)])
    num_once = len(chosen)
    if cell == "duplicates":
        chosen = np.concatenate([chosen, rng.permutation(chosen)[: round(_REPEATED * num_once)]])
    train = [train[row] for row in chosen.tolist()]
    # The uids of texts must differ.
    train[num_once:] = [row | {"uid": f"{row['uid']} again"} for row in train[num_once:]]
    if cell == "single":
        train, test = ([with_one_label(row, rng) for row in split] for split in (train, test))
    if cell == "ids":
        numbers = rng.permutation(len(labels)).tolist()
        labels = [{"uid": row["uid"], "title": f"L{number:07}"} for row, number in zip(labels, numbers, strict=True)]
    for split, written in (("trn", train), ("tst", test), ("lbl", labels)):
        with gzip.open(target / f"{split}.json.gz", "wt", compresslevel=1) as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in written)
    for split, kept in (("train", chosen), ("test", tested)):
        write_pairs(source / f"filter_labels_{split}.txt", target, kept)


def write_pairs(source: Path, target: Path, kept: NDArray[np.int64]) -> None:
    """The filter pairs of the texts that are kept, with their new rows."""
    if not source.exists():
        return
    pairs = defaultdict(list)
    for line in source.read_text().splitlines():
        row, label = map(int, line.split())
        pairs[row].append(label)
    lines = [f"{new} {label}\n" for new, old in enumerate(kept.tolist()) for label in pairs[old]]
    (target / source.name).write_text("".join(lines))


def with_one_label(row: RawRow, rng: np.random.Generator) -> RawRow:
    """The row with one of its labels."""
    if len(row["target_ind"]) < 2:
        return row
    place = int(rng.integers(len(row["target_ind"])))
    return row | {name: row[name][place : place + 1] for name in ("target_ind", "target_rel") if name in row}


def rows(file: Path) -> list[RawRow]:
    """The lines of a file of the raw XC format."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    main()
