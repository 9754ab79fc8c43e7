"""The whole test suite beside busy loops: whether a slow machine makes tests fail.

Run: python benchmarks/busy_suite.py [--runs 5] [--loops 8] [--at-once 1] [--keep FILE] [-- ARGUMENTS OF PYTEST]

Runs the suite as `make test` does, several times after each other, while so many processes count without end. One line
per run: passed, failed, skipped, CPU seconds of the suite with all its processes, and minutes. With --keep, the lines
stand in FILE too, the same command makes those runs alone that are missing, and the output of run N is in FILE.N.

``--at-once 5 --loops 0`` runs five suites side by side: each has two busy processes, and so eight of the others beside
it. That takes a quarter of the time, and finds what suites do to each other (ports, caches, temporary folders) too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from busy_machine import busy_loops

SUITE = ("-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def run_suite(arguments: list[str], log: Path | None) -> dict[str, Any]:
    """One run of the suite: its counts, its failed tests, its CPU seconds and its minutes."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *SUITE, *arguments],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    # Not os.times: that counts the children of suites that run at the same time, too.
    _, status, used = os.wait4(process.pid, 0)
    if log is not None:
        log.write_text(output)
    found = dict.fromkeys(("passed", "failed", "error", "skipped"), 0)
    summary = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|error).* in ", line)]
    for count, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", summary[-1] if summary else ""):
        found[kind] = int(count)
    return {
        **found,
        "exit_code": os.waitstatus_to_exitcode(status),
        "cpu_seconds": round(used.ru_utime + used.ru_stime),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "failures": re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--loops", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=1, help="suites that run at the same time")
    parser.add_argument("--keep", type=Path, help="the lines of finished runs, from which the same command continues")
    parser.add_argument("arguments", nargs="*", help="of pytest")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if chosen.keep is not None and chosen.keep.exists():
        rows = [json.loads(line) for line in chosen.keep.read_text().splitlines()]
    missing = sorted(set(range(1, chosen.runs + 1)) - {row["run"] for row in rows})

    def run(number: int) -> None:
        log = None if chosen.keep is None else chosen.keep.with_name(f"{chosen.keep.name}.{number}")
        beside = {"loops": chosen.loops, "at_once": chosen.at_once}
        rows.append({"run": number, **beside, **run_suite(chosen.arguments, log)})
        print(json.dumps(rows[-1]), flush=True)
        if chosen.keep is not None:
            with chosen.keep.open("a") as out:
                out.write(json.dumps(rows[-1]) + "\n")

    with busy_loops(chosen.loops), ThreadPoolExecutor(chosen.at_once) as pool:
        list(pool.map(run, missing))
    sys.exit(any(row["exit_code"] for row in rows))


if __name__ == "__main__":
    main()
