"""How fast and how lean CommitFiles (555K texts, 165K labels) is read, against a bare loop over the same lines.

The bare loop only gunzips and parses: ``for line in gzip.open(file): parse(line)`` with orjson and with msgspec, of
which the faster counts. Each measurement is a process of its own; the programs take turns, and the best of several
turns counts, as the machine may be busy with other things.

    python benchmarks/reading.py [--data ../shared/data/CommitFiles] [--turns 5]

Exits with 1 where reading takes more than twice the CPU time of the bare loop, or where its memory peak is more than
four times the size of the decompressed files.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

FILES = ("trn.json.gz", "tst.json.gz", "lbl.json.gz")
MOST_TIME, MOST_MEMORY = 2.0, 4.0


def bare_loop(folder: Path, parser: str) -> int:
    import gzip

    if parser == "orjson":
        from orjson import loads as parse
    else:
        import msgspec

        parse = msgspec.json.Decoder().decode
    num_bytes = 0
    for name in FILES:
        with gzip.open(folder / name, "rb") as lines:
            for line in lines:
                parse(line)
                num_bytes += len(line)
    return num_bytes


def read_it(folder: Path) -> int:
    from unidex.data.formats import read

    return read(folder).train.texts.num_bytes


def measure(what: str, folder: Path) -> None:
    """Run one program in this process and print its CPU time, its memory peak and the bytes it saw."""
    if what == "unidex":
        import unidex.data.formats.xc_raw  # noqa: F401  # as the others, without the time of the imports
    started = time.process_time()
    num_bytes = read_it(folder) if what == "unidex" else bare_loop(folder, what)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "num_bytes": num_bytes}))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(__file__).resolve().parents[2] / "shared" / "data" / "CommitFiles"
    options.add_argument("--data", type=Path, default=shared, help="a folder of raw XC files")
    options.add_argument("--turns", type=int, default=5, help="how often each program is measured")
    options.add_argument("--measure", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.measure:
        measure(given.measure, given.data)
        return
    if not given.data.is_dir():
        sys.exit(f"{given.data}: the data set must be there to be read, but is not; name one with --data")
    programs = ("orjson", "msgspec", "unidex")
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    peak: dict[str, list[int]] = {name: [] for name in programs}
    num_bytes = 0
    for _ in range(given.turns):
        for name in programs:
            command = [sys.executable, __file__, "--data", str(given.data), "--measure", name]
            found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            seconds[name].append(found["seconds"])
            peak[name].append(found["peak"])
            num_bytes = max(num_bytes, found["num_bytes"])
    fastest = min(programs[:2], key=lambda name: min(seconds[name]))
    print(f"{given.data.name}, {num_bytes / 2**20:.0f} MB decompressed, {given.turns} turns")
    print(f"{'program':26}{'CPU s, best':>12}{'worst':>8}{'memory MB':>11}")
    for name in programs:
        what = "unidex" if name == "unidex" else f"bare loop, {name}"
        print(f"{what:26}{min(seconds[name]):12.2f}{max(seconds[name]):8.2f}{max(peak[name]) / 2**20:11.0f}")
    times = min(seconds["unidex"]) / min(seconds[fastest])
    memory = max(peak["unidex"]) / num_bytes
    print(f"CPU time, against the bare loop with {fastest}: {times:.2f} (at most {MOST_TIME:g})")
    print(f"memory peak, against the decompressed size: {memory:.2f} (at most {MOST_MEMORY:g})")
    sys.exit(int(times > MOST_TIME or memory > MOST_MEMORY))


if __name__ == "__main__":
    main()
