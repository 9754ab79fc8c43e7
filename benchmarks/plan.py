"""What ``unidex plan`` predicts beside what a training takes: memory and CPU time, per phase and in all.

    python benchmarks/plan.py DATA [DATA ...] [--set SECTION.KEY=VALUE] [--keep FOLDER] > table.md

Each data set is planned and then trained, each in a process of its own. Memory is what the system cannot take back
(RssAnon of /proc/self/status, read 30 times a second); CPU time is user and system time, so that other jobs on the
machine matter little. "ratio" is predicted / measured.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unidex import progress
from unidex.storage.resources import process_memory

EVERY_SECONDS = 1 / 30


class PhaseUsage:
    """The CPU seconds and the highest memory of each phase of this process."""

    def __init__(self) -> None:
        self.phases: dict[str, dict[str, float]] = {}
        self.highest = 0
        self._in_phase = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._in_phase = max(self._in_phase, process_memory())
            self.highest = max(self.highest, self._in_phase)
            time.sleep(EVERY_SECONDS)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note the usage of a phase."""
        started, self._in_phase = time.process_time(), process_memory()
        yield
        self.phases[name] = {"cpu_seconds": time.process_time() - started, "memory": self._in_phase}


def measure(data: str, out: Path, settings: list[str]) -> None:
    """Train and print the usage as JSON."""
    usage, plain = PhaseUsage(), progress.phase

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        with usage.phase(name), plain(name):
            yield

    progress.phase = noted
    from unidex.verbs.train import train

    logging.disable()
    model = train(data, settings=settings, out=out, force=True)
    test = model.metrics.get("test", {})
    found = {
        "phases": usage.phases,
        "memory": usage.highest,
        "cpu_seconds": time.process_time(),
        "P@1": test.get("P@1"),
    }
    print(json.dumps(found))


def rows_of(data: str, settings: list[str], folder: Path) -> list[list[str]]:
    name = Path(data).name
    changes = [item for setting in settings for item in ("--set", setting)]
    unidex = [sys.executable, "-m", "unidex", "--quiet", "plan", data, *changes, "--json"]
    planned = json.loads(subprocess.run(unidex, check=True, capture_output=True, text=True).stdout)
    child = [sys.executable, __file__, data, "--measure", str(folder / name), *changes]
    measured = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    rows = []
    for phase, need in planned["phases"].items():
        found = measured["phases"].get(phase)
        if found is not None:
            pairs = [(sum(need["memory"].values()), found["memory"]), (need["cpu_seconds"], found["cpu_seconds"])]
            rows.append([name, phase, *_cells(pairs[0], 1e6), *_cells(pairs[1], 1)])
    whole = [(planned["peak_memory"], measured["memory"]), (planned["cpu_seconds"], measured["cpu_seconds"])]
    rows.append([f"**{name}**", "**whole run**", *_cells(whole[0], 1e6), *_cells(whole[1], 1)])
    return rows


def _cells(pair: tuple[float, float], unit: float) -> list[str]:
    predicted, measured = pair
    return [f"{predicted / unit:,.0f}", f"{measured / unit:,.0f}", f"{predicted / max(measured, 1e-9):.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE")
    parser.add_argument("--keep", type=Path, help="where the models stay")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.data[0], options.measure, options.settings)
        return
    print("| data set | phase | MB planned | MB measured | ratio | CPU s planned | CPU s measured | ratio |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as temporary:
        for data in options.data:
            rows: list[list[Any]] = rows_of(data, options.settings, options.keep or Path(temporary))
            for row in rows:
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
