"""Annif and unidex on the same data: the same project in both, with scores, CPU time and memory.

    python benchmarks/annif_beside.py DATA --annif ENV/bin/annif --work FOLDER --language de \
        --analyzer "snowball(german)" [--labels vocabulary.tsv] [--test FOLDER]

DATA is anything that ``unidex train`` reads. It is written as an Annif corpus (text, TAB, ``<uri>``s) with an Annif
vocabulary. Annif's backends tfidf, omikuji (Bonsai settings of its wiki) and mllm are trained on nine tenths of the
train texts; the remaining tenth chooses the weights of the ensemble (``annif hyperopt``, NDCG) and, with --neural,
trains its neural ensemble. Then the three are trained again on all train texts, so that Annif loses nothing
by the choice, and ``annif eval`` scores every project on the test texts. ``unidex train`` runs with its defaults on the
corpus as Annif reads it, and ``unidex evaluate`` scores it. The test texts choose nothing.

Parts that are finished are read from FOLDER and not run again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from peers_runs import UNIDEX, Used, measured
from unidex.data.dataset import Dataset, Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions

SOURCES = ("tfidf", "omikuji", "mllm")
_URI = "https://example.org/subjects/"
_SHOWN = ("F1@5", "NDCG", "NDCG@5", "Precision@1")
_ENSEMBLES = ("ensemble", "nn_ensemble")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--annif", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--language", default="en", help="language of the vocabulary")
    parser.add_argument("--analyzer", default="snowball(english)", help="Annif's analyzer for the texts")
    parser.add_argument("--lexical-analyzer", help="the analyzer of mllm, which reads labels too; default: the same")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--neural", action="store_true", help="Annif's neural ensemble too; needs its extra nn")
    asked = parser.parse_args()
    work: Path = asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "corpus").is_dir():
        dataset = read(asked.data, ReadOptions(labels=asked.labels, test=asked.test))
        shutil.rmtree(work / "unfinished", ignore_errors=True)
        _write_corpus(dataset, work / "unfinished")
        (work / "unfinished").rename(work / "corpus")
    runs = Runs(work, asked.annif, asked.language, asked.analyzer, asked.lexical_analyzer or asked.analyzer)
    rows = runs.annif(asked.trials, asked.neural)
    rows["unidex"] = runs.unidex()
    _print(rows)


class Runs:
    """The runs of both systems in one folder."""

    def __init__(self, work: Path, annif: Path, language: str, analyzer: str, lexical: str) -> None:
        self._work, self._program = work, annif
        self._language, self._analyzer, self._lexical = language, analyzer, lexical

    def annif(self, trials: int, neural: bool) -> dict[str, dict[str, float]]:
        """Metrics, CPU seconds of training and of prediction, and the memory of each project."""
        weights = ",".join(SOURCES)
        self._configure(weights)
        self._run("vocabulary", "load-vocab", "-L", self._language, "v", "corpus/vocabulary.tsv")
        for source in SOURCES:
            self._run(f"part-{source}", "train", f"part-{source}", "corpus/most.tsv")
        found = self._run(
            "hyperopt", "hyperopt", "part-ensemble", "corpus/validate.tsv", "--trials", str(trials), "--jobs", "1"
        )
        weights = re.findall(r"sources=(\S+)", found.output)[-1].replace("part-", "")
        self._configure(weights)
        ensembles = ["ensemble"]
        if neural:
            ensembles.append("nn_ensemble")
            self._run("train-nn_ensemble", "train", "part-nn_ensemble", "corpus/validate.tsv")
            data = self._work / "data" / "projects"
            shutil.copytree(data / "part-nn_ensemble", data / "nn_ensemble", dirs_exist_ok=True)
        rows = {}
        for name in (*SOURCES, *ensembles):
            training = [self._run(f"train-{name}", "train", name, "corpus/train.tsv")] if name in SOURCES else []
            metrics = self._work / f"metrics-{name}.json"
            judged = self._run(f"eval-{name}", "eval", name, "corpus/test.tsv", "--metrics-file", str(metrics))
            rows[name] = _row(json.loads(metrics.read_text()), training, judged)
        # An ensemble needs its sources, and their first training and the choice of weights belong to it.
        for name in ensembles:
            parts = [self._used(f"part-{source}") for source in SOURCES] + [self._used("hyperopt")]
            parts += [self._used("train-nn_ensemble")] if name == "nn_ensemble" else []
            whole = [rows[source] for source in SOURCES]
            rows[name]["training"] = sum(row["training"] for row in whole) + sum(part.cpu_s for part in parts)
            rows[name]["memory"] = max([rows[name]["memory"], *(part.peak_mb for part in parts)])
        print(f"weights of the ensemble: {weights}", file=sys.stderr)
        return rows

    def unidex(self) -> dict[str, float]:
        """The same of ``unidex train`` with its defaults, on the corpus as Annif reads it."""
        model = self._work / "model"
        corpus = self._work / "corpus"
        options = ("--labels", corpus / "vocabulary.tsv")
        train = [*UNIDEX, "train", corpus / "train.tsv", *options, "--test-fraction", "0", "--out", model]
        training = self._measured("unidex-train", train)
        judged = self._measured(
            "unidex-eval", [*UNIDEX, "evaluate", model, corpus / "test.tsv", *options, "--with-train-texts", "--json"]
        )
        found = json.loads(judged.output)
        metrics = {
            "F1@5": found["F1@5"] / 100,
            "NDCG": found["averages"]["NDCG"] / 100,
            "NDCG@5": found["nDCG@5"] / 100,
            "Precision@1": found["P@1"] / 100,
        }
        return _row(metrics, [training], judged)

    def _configure(self, weights: str) -> None:
        blocks = []
        for prefix in ("part-", ""):
            about = {
                "tfidf": ("tfidf", self._analyzer, {}),
                "omikuji": ("omikuji", self._analyzer, {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}),
                "mllm": ("mllm", self._lexical, {}),
                "ensemble": ("ensemble", None, {"sources": _prefixed(weights, prefix)}),
                "nn_ensemble": ("nn_ensemble", None, {"sources": _prefixed(weights, prefix)}),
            }
            for name, (backend, analyzer, settings) in about.items():
                settings = {"name": prefix + name, "backend": backend, "vocab": "v", "limit": 100, **settings}
                settings |= {"language": self._language} | ({} if analyzer is None else {"analyzer": analyzer})
                lines = [f"{key}={value}" for key, value in settings.items()]
                blocks.append("\n".join([f"[{prefix}{name}]", *lines]))
        (self._work / "projects.cfg").write_text("\n\n".join(blocks) + "\n")

    def _run(self, name: str, *arguments: str) -> Used:
        return self._measured(name, [self._program, *arguments])

    def _measured(self, name: str, command: list[str | Path]) -> Used:
        file = self._work / "runs" / f"{name}.json"
        if not file.is_file():
            print(name, flush=True, file=sys.stderr)
            variables = {"ANNIF_DATADIR": str(self._work / "data"), "ANNIF_PROJECTS": str(self._work / "projects.cfg")}
            resolved = [self._work / part if str(part).startswith("corpus/") else part for part in command]
            used = measured(resolved, file.with_suffix(""), variables)
            file.write_text(json.dumps(vars(used)))
        return self._used(name)

    def _used(self, name: str) -> Used:
        return Used(**json.loads((self._work / "runs" / f"{name}.json").read_text()))


def _prefixed(weights: str, prefix: str) -> str:
    return ",".join(prefix + source for source in weights.split(","))


def _row(metrics: dict[str, float], training: Iterable[Used], judged: Used) -> dict[str, float]:
    parts = [*training, judged]
    return {
        **{name: 100 * metrics[name] for name in _SHOWN},
        "training": sum(part.cpu_s for part in parts[:-1]),
        "prediction": judged.cpu_s,
        "memory": max(part.peak_mb for part in parts),
    }


def _print(rows: dict[str, dict[str, float]]) -> None:
    print("| project | F1@5 | NDCG | NDCG@5 | P@1 | CPU s training | CPU s evaluation | memory |")
    print("|---|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        scores = " | ".join(f"{row[metric]:.1f}" for metric in _SHOWN)
        times = f"{row['training']:,.0f} | {row['prediction']:,.0f} | {row['memory']:,.0f} MB"
        print(f"| {name} | {scores} | {times} |")
    for metric in ("F1@5", "NDCG"):
        best = max(row[metric] for name, row in rows.items() if name in _ENSEMBLES)
        print(f"{metric}: unidex {rows['unidex'][metric] - best:+.1f} points against the best ensemble")


def _write_corpus(dataset: Dataset, folder: Path) -> None:
    folder.mkdir()
    uris = [_uri(dataset.labels.uid(label)) for label in range(dataset.num_labels)]
    with (folder / "vocabulary.tsv").open("w") as out:
        out.writelines(f"<{uri}>\t{_line(text)}\n" for uri, text in zip(uris, dataset.labels.texts, strict=True))
    _write_texts(folder / "train.tsv", dataset.train, uris)
    _write_texts(folder / "test.tsv", dataset.test, uris)
    order = np.random.default_rng(0).permutation(len(dataset.train))
    held_out = max(len(order) // 10, 1)
    _write_texts(folder / "validate.tsv", dataset.train.take(np.sort(order[:held_out])), uris)
    _write_texts(folder / "most.tsv", dataset.train.take(np.sort(order[held_out:])), uris)


def _write_texts(file: Path, split: Split, uris: list[str]) -> None:
    positives = split.positives
    with file.open("w") as out:
        for row, text in enumerate(split.texts):
            labels = positives.indices[positives.indptr[row] : positives.indptr[row + 1]]
            out.write(_line(text) + "\t" + " ".join(f"<{uris[label]}>" for label in labels) + "\n")


def _uri(uid: str) -> str:
    return uid if "://" in uid else _URI + re.sub(r"[^\w.-]", "-", uid)


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
