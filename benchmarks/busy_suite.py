"""The whole test suite beside busy loops: whether a slow machine makes tests fail.

Run: python benchmarks/busy_suite.py [--runs 5] [--loops 8] [--keep FILE] [-- ARGUMENTS OF PYTEST]

Runs the suite as `make test` does, several times after each other, while so many processes count without end. One line
per run: passed, failed, skipped, CPU seconds of the suite with all its processes, and minutes. With --keep, the lines
stand in FILE too, the same command makes those runs alone that are missing, and the output of run N is in FILE.N.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from busy_machine import busy_loops

SUITE = ("-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def run_suite(arguments: list[str], log: Path | None) -> dict[str, Any]:
    """One run of the suite: its counts, its failed tests, its CPU seconds and its minutes."""
    started, before = time.monotonic(), os.times()
    command = [sys.executable, *SUITE, *arguments]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    after = os.times()
    if log is not None:
        log.write_text(done.stdout)
    found = dict.fromkeys(("passed", "failed", "error", "skipped"), 0)
    summary = [line for line in done.stdout.splitlines() if re.search(r"\d+ (passed|failed|error).* in ", line)]
    for count, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", summary[-1] if summary else ""):
        found[kind] = int(count)
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        **found,
        "exit_code": done.returncode,
        "cpu_seconds": round(used),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "failures": re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--loops", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="the lines of finished runs, from which the same command continues")
    parser.add_argument("arguments", nargs="*", help="of pytest")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if chosen.keep is not None and chosen.keep.exists():
        rows = [json.loads(line) for line in chosen.keep.read_text().splitlines()]
    with busy_loops(chosen.loops):
        while len(rows) < chosen.runs:
            number = len(rows) + 1
            log = None if chosen.keep is None else chosen.keep.with_name(f"{chosen.keep.name}.{number}")
            rows.append({"run": number, "loops": chosen.loops, **run_suite(chosen.arguments, log)})
            print(json.dumps(rows[-1]), flush=True)
            if chosen.keep is not None:
                with chosen.keep.open("a") as out:
                    out.write(json.dumps(rows[-1]) + "\n")
    sys.exit(any(row["exit_code"] for row in rows))


if __name__ == "__main__":
    main()
