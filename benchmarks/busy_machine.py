"""CPU time of a command on the machine as it is and beside busy loops: threads that wait must not spin.

Run: python benchmarks/busy_machine.py [--busy 8] [--rounds 2] [--maximum 1.3] -- train hpo --set train.epochs=1
Runs ``unidex`` with the words behind -- alone and beside as many busy loops, in turn, with the variables that choose
threads unset, as users start it. Prints the CPU seconds of both and their ratio; exit code 1 above the maximum.
{out} in the words is a new folder.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_THREADS = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=8, help="number of busy loops")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--maximum", type=float, default=1.3, help="of the ratio of CPU times")
    parser.add_argument("words", nargs="+", help="the words of a unidex command, behind --")
    chosen = parser.parse_args()
    alone, beside = [], []
    for _ in range(chosen.rounds):
        alone.append(cpu_seconds(chosen.words))
        with busy_loops(chosen.busy):
            beside.append(cpu_seconds(chosen.words))
        print(f"alone {alone[-1]:.1f} CPU s, beside {chosen.busy} busy loops {beside[-1]:.1f} CPU s", flush=True)
    ratio = min(beside) / min(alone)
    print(f"ratio of the lowest: {ratio:.2f}, maximum {chosen.maximum}")
    sys.exit(ratio > chosen.maximum)


def cpu_seconds(words: list[str]) -> float:
    """User and system time of one command and its children."""
    environment = {name: value for name, value in os.environ.items() if name not in _THREADS}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "unidex", "-q"]
        command += [word.replace("{out}", str(Path(place) / "out")) for word in words]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main()
