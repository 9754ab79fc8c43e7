"""Training and batch prediction of unidex and of PECOS XR-Linear with the same kinds of features, in one run.

Run: python benchmarks/training_beside_pecos.py DATA... --peers ENVIRONMENTS [--text title] [--rounds 3]
DATA is a folder, or FOLDER:title to give it another --text than the rest. ENVIRONMENTS holds the virtual environment
libpecos.

Training of both is one process from text files to a model on disk, without test texts, started in turn: ``unidex
train``, and `pecos_training.py` (TF-IDF of words, word bigrams and characters; the library's defaults). CPU seconds are
of all threads, peak MB is the highest resident memory. Then both predict ten labels of all test texts at once, from
texts, in turn (`prediction_time.py`, `pecos_prediction.py`): the median of the rounds, without loading and reading.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from peers import TEXTS, source_and_text
from peers_runs import HERE, UNIDEX, Bench, measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--peers", type=Path, required=True, help="the folder with one environment per peer")
    parser.add_argument("--text", default="title+content", choices=TEXTS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="of prediction")
    chosen = parser.parse_args()
    print("| set | texts | CPU s, PECOS | unidex | ratio | peak MB, PECOS | unidex | ratio ", end="")
    print("| predict, CPU ms per text, PECOS | unidex | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for given in chosen.data:
        source, text = source_and_text(given, chosen.text)
        with tempfile.TemporaryDirectory() as keep:
            bench = Bench(source, text, Path(keep), num_threads=chosen.threads)
            train, python = bench.folder / "train", chosen.peers / "libpecos" / "bin" / "python"
            peer_model, model = bench.folder / "pecos", bench.folder / "model"
            commands = {
                "pecos": (python, HERE / "pecos_training.py", train, peer_model),
                "unidex": (*UNIDEX, "train", train, "--out", model),
            }
            used = {name: measured(command, bench.folder / name, bench.variables) for name, command in commands.items()}
            predictions = {
                "pecos": (python, HERE / "pecos_prediction.py", peer_model, bench.data / "tst.json.gz"),
                "unidex": (sys.executable, HERE / "prediction_time.py", model, bench.data, "--single", "1"),
            }
            rounds = [
                {name: ms_per_text(command, bench) for name, command in predictions.items()}
                for _ in range(chosen.rounds)
            ]
            shutil.rmtree(bench.folder)
        peer, ours = used["pecos"], used["unidex"]
        peer_ms, our_ms = (statistics.median(one[name] for one in rounds) for name in ("pecos", "unidex"))
        cells = [bench.task.name, f"{bench.task.num_train:,}"]
        cells += [f"{peer.cpu_s:.1f}", f"{ours.cpu_s:.1f}", f"{ours.cpu_s / peer.cpu_s:.2f}"]
        cells += [f"{peer.peak_mb:,.0f}", f"{ours.peak_mb:,.0f}", f"{ours.peak_mb / peer.peak_mb:.2f}"]
        cells += [f"{peer_ms:.3f}", f"{our_ms:.3f}", f"{our_ms / peer_ms:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def ms_per_text(command: tuple[str | Path, ...], bench: Bench) -> float:
    found = json.loads(measured(command, bench.folder / "prediction", bench.variables).output)
    found = found.get("batch", found)
    return float(1000 * found["cpu_s"] / found["num_texts"])


if __name__ == "__main__":
    main()
