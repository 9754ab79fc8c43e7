"""Training of unidex and of PECOS XR-Linear with the same kinds of features, counted alike, in one run.

Run: python benchmarks/training_beside_pecos.py DATA... --peers ENVIRONMENTS [--text title] [--keep FOLDER]
DATA is a folder, or FOLDER:title to give it another --text than the rest. ENVIRONMENTS holds the virtual environment
libpecos.

Both are one process from text files to a model on disk, without test texts, started in turn: ``unidex train``, and
`pecos_training.py` (TF-IDF of words, word bigrams and characters; the library's defaults). CPU seconds are of all
threads, peak MB is the highest resident memory.
"""

from __future__ import annotations

import argparse
import shutil
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
    chosen = parser.parse_args()
    print("| set | texts | CPU s, PECOS | CPU s, unidex | ratio | peak MB, PECOS | peak MB, unidex | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for given in chosen.data:
        source, text = source_and_text(given, chosen.text)
        with tempfile.TemporaryDirectory() as keep:
            bench = Bench(source, text, Path(keep), num_threads=chosen.threads)
            train, python = bench.folder / "train", chosen.peers / "libpecos" / "bin" / "python"
            commands = {
                "pecos": (python, HERE / "pecos_training.py", train, bench.folder / "pecos"),
                "unidex": (*UNIDEX, "train", train, "--out", bench.folder / "model"),
            }
            used = {name: measured(command, bench.folder / name, bench.variables) for name, command in commands.items()}
            shutil.rmtree(bench.folder)
        peer, ours = used["pecos"], used["unidex"]
        cells = [bench.task.name, f"{bench.task.num_train:,}"]
        cells += [f"{peer.cpu_s:.1f}", f"{ours.cpu_s:.1f}", f"{ours.cpu_s / peer.cpu_s:.2f}"]
        cells += [f"{peer.peak_mb:,.0f}", f"{ours.peak_mb:,.0f}", f"{ours.peak_mb / peer.peak_mb:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
