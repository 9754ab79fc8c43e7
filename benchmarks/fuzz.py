"""Mutated lines through every reader, mutated requests, mutated model folders: no traceback, no hang, no lost process.

Run: python benchmarks/fuzz.py [lines] [requests] [folders] [--lines 1000000] [--requests 100000] [--folders 10000]
     [--first 0] [--seed 0] [--keep FILE]

lines     One or two lines of a small data set are changed in each case, which is then read, in every format and also in
          a format that it does not have. It must be read, or refused with one line that names the file.
requests  The body of a request is changed: bytes, values, keys, nesting. The answer must have a status below 500 and
          the form of all answers. The whole service answers, without a socket.
folders   A file of a model folder is cut, changed or swapped, in two of three cases with a matching manifest. The model
          must be refused with one line, or predict and explain.

A case is drawn from the seed and its number, so that it can be repeated: --first and a count of 1. Cases run in forked
processes, 1,000 after each other. A process that dies, takes 60 CPU seconds for one case, or tells nothing for ten
minutes, is reported with the number of the case. With --keep, each 1,000 cases are a line of FILE, and the same command
continues after the last of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PER_PROCESS = 1000
CPU_SECONDS = 60
SILENT_SECONDS = 600
Case = Callable[[random.Random], str]
ODD = [
    *(b"", b"-", b"9", b"-1", b"99999999999999999999", b"nan", b"inf", b"1e99", b"1e-400", b"0x1", b"\n\n", b"\r"),
    *(b"\t", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\ud800", b"\\u0000", b"\x00", b"\xff\xfe", b"\xe2\x80\xa8"),
    *(b"null", b"true", b"1:", b":1", b",,", b"   ", b"=", b"<>", b"[" * 2000, b"\xf0\x9f\x92\xa9", b"\xed\xa0\x80"),
    *(b"title", b"labels"),
]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content after one to three changes."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(content) + 1)
        end = min(len(content), at + rng.choice((1, 1, 2, 5, 20)))
        kind = rng.randrange(7)
        if kind == 0:
            content = content[:at]
        elif kind == 1 and at < len(content):
            content = content[:at] + bytes([content[at] ^ rng.randrange(1, 256)]) + content[at + 1 :]
        elif kind == 2:
            content = content[:at] + rng.choice(ODD) + content[at:]
        elif kind == 3:
            content = content[:end] + content[at:]
        elif kind == 4:
            content = content[:at] + content[end:]
        elif kind == 5:
            content = content[:at] + rng.choice(ODD) + content[end:]
        else:
            content = content[:at] + rng.randbytes(rng.randint(1, 8)) + content[end:]
    return content


def one_line(error: Exception) -> str:
    if len(str(error).splitlines()) != 1:
        raise ValueError(f"a refusal must be one line, but is {error}")
    return "refused"


# Readers


def write_sets(folder: Path) -> dict[str, str]:
    """A small data set in every format: the name of its folder or file -> the format."""
    from unidex.data import formats
    from unidex.data.read_options import ReadOptions

    texts = ["red shoes", "a blue hat", "green scarf é", "one shoe", "hat \u4e2d\u6587", "a scarf"]
    labels = [["shoe"], ["hat", "blue"], ["scarf"], ["shoe", "red"], ["hat"], ["scarf", "green"]]
    rows = list(zip(texts, labels, strict=True))
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text, "labels": own}) + "\n" for text, own in rows))
    (folder / "a.csv").write_text("text,labels\n" + "".join(f'"{text}",{";".join(own)}\n' for text, own in rows))
    (folder / "a.tsv").write_text("text\tlabels\n" + "".join(f"{text}\t{';'.join(own)}\n" for text, own in rows))
    (folder / "a.txt").write_text("".join(f"{' '.join(own)}\t{text}\n" for text, own in rows))
    uris = [" ".join(f"<http://example.org/{label}>" for label in own) for own in labels]
    annif = "".join(f"{text}\t{own}\n" for text, own in zip(texts, uris, strict=True))
    (folder / "annif.tsv").write_text(annif)
    (folder / "bag.txt").write_text("4 5 3\n0,2 0:1.5 4:0.5\n1 2:1\n 3:0.25\n2 0:1 1:1\n")
    data = formats.read(folder / "a.jsonl", ReadOptions(test_fraction=0.3))
    found = {"a.jsonl": "table", "a.csv": "table", "a.tsv": "table", "a.txt": "libmultilabel"}
    found |= {"annif.tsv": "annif", "bag.txt": "bag-of-words"}
    for name in formats.WRITE_FORMATS:
        formats.write(data, folder / name, name)
        found[name] = "table" if name == "jsonl" else name
    return found


def lines_case(work: Path) -> Case:
    """Change one or two lines of one file of one data set, and read it."""
    from unidex.data import formats
    from unidex.data.read_options import ReadOptions
    from unidex.errors import DataError

    good = work / "good"
    good.mkdir()
    sets = write_sets(good)
    inside = {
        name: [good / name] if (good / name).is_file() else sorted(f for f in (good / name).rglob("*") if f.is_file())
        for name in sets
    }

    def case(rng: random.Random) -> str:
        name = rng.choice(list(sets))
        # One copy of each set per process; a case changes one file of it and puts it back.
        place = work / f"case-{os.getpid()}"
        if not place.exists():
            shutil.copytree(good, place, copy_function=os.link)
        source = rng.choice(inside[name])
        content = source.read_bytes()
        lines = content.splitlines(keepends=True) if source.suffix not in (".npy", ".npz", ".gz") else [content]
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(lines)) if lines else 0
            lines[at : at + 1] = [mutated(lines[at] if lines else b"", rng)]
        changed = place / source.relative_to(good)
        changed.unlink()
        changed.write_bytes(b"".join(lines))
        form = rng.choice((sets[name], sets[name], None, rng.choice(formats.READ_FORMATS)))
        try:
            data = formats.read(place / name, ReadOptions(format=form))
            for split in data.splits:
                list(split.texts.fields())
            list(data.labels.texts)
        except DataError as error:
            return one_line(error)
        finally:
            changed.unlink()
            os.link(source, changed)
        return "read"

    return case


# Requests


def requests_case(work: Path) -> Case:
    """Change the body of a request to one of the routes that take one."""
    from unidex.server.app import create_app
    from unidex.server.settings import Limits, Settings

    folder = train_model(work)
    (work / "tokens").write_text("a-token-of-the-benchmark\n")
    (work / "tokens").chmod(0o600)
    bodies = {
        "/v1/predict": {"text": "w0 w1 w30", "k": 3, "mode": "both", "allowed": ["w0 w1"], "min_probability": 0.1},
        "/v1/explain": {"text": "w0 w1", "k": 2, "labels": ["w0 w1"], "mode": "dual"},
        "/v1/labels": {"labels": [{"text": "a new label", "uid": "n"}]},
        "/v1/predict/table": None,
    }
    table = b"text,note\nw0 w1,a\nw2 w3,b\n"
    state: dict[str, Any] = {}

    async def answer(place: str, body: bytes, query: bytes) -> tuple[int, bytes]:
        app = state["app"]
        headers = [(b"host", b"x"), (b"authorization", b"Bearer a-token-of-the-benchmark")]
        scope = {
            **{"type": "http", "http_version": "1.1", "method": "POST", "path": place, "raw_path": place.encode()},
            **{"query_string": query, "headers": headers, "scheme": "http", "root_path": ""},
            **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)},
        }
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return parts.pop() if parts else await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            sent.append(dict(message))

        await app(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    def begin() -> None:
        loop = asyncio.new_event_loop()
        state["loop"] = loop
        # A copy per process: labels that are added stay in it.
        own = work / f"model-{os.getpid()}"
        shutil.copytree(folder, own)
        app = create_app(Settings(folder=own, limits=Limits(), token_file=work / "tokens"))
        state["app"] = app
        loop.run_until_complete(app.service.start())

    def case(rng: random.Random) -> str:
        if not state:
            begin()
        place = rng.choice([*bodies, "/v1/predict", "/v1/predict"])
        body = table if bodies[place] is None else json.dumps(varied(bodies[place], rng)).encode()
        if rng.random() < 0.8:
            body = mutated(body, rng)
        query = mutated(b"k=3&target=jsonl", rng) if place.endswith("table") and rng.random() < 0.5 else b""
        status, answered = state["loop"].run_until_complete(answer(place, body, query))
        assert status < 500, (place, body, answered)
        if status >= 400:
            problem = json.loads(answered)
            assert problem["status"] == status, (body, answered)
        return f"{status // 100}xx"

    return case


def varied(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The body with values of other types, other keys, or less of both."""
    odd = [
        None,
        True,
        -1,
        0,
        1e308,
        "",
        "\ud800",
        "x" * 30_000,
        [],
        {},
        [[]],
        ["a", 1],
        {"a": {}},
        2**70,
        [None] * 2000,
    ]
    changed = dict(body)
    for name in body:
        draw = rng.random()
        if draw < 0.1:
            changed[name] = rng.choice(odd)
        elif draw < 0.15:
            del changed[name]
    if rng.random() < 0.1:
        changed[rng.choice(["texts", "forbidden", "unknown", "__class__", ""])] = rng.choice(odd)
    return changed


# Model folders


def train_model(work: Path, *, has_trees: bool = False) -> Path:
    """A model with every part that a folder can have; the ranker is linear, or has trees, classifiers and links."""
    from unidex.data import formats
    from unidex.training import validation
    from unidex.verbs.train import train

    rng = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    rows = []
    for number in range(720 if has_trees else 240):
        label = number % 12
        # Links: the text of a label and that of its neighbour refer to each other.
        name = label ^ 1 if has_trees else label
        text = " ".join([words[2 * name], words[2 * name + 1], *rng.choices(words[24:], k=3)])
        rows.append({"text": text, "labels": [f"{words[2 * label]} {words[2 * label + 1]}"]})
    file, folder = work / "rows.jsonl", work / ("trees" if has_trees else "model")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["encoder.dim=8", "features.min_df=1", "train.epochs=1", "train.batch_size=32", "train.validation=0.4"]
    settings += ["predict.snippet_length=20", "predict.rank=learned", f"predict.linear={str(has_trees).lower()}"]
    # Classifiers are kept whether they pay or not: on so easy a problem nothing does.
    pays, validation._MIN_GAIN = validation._MIN_GAIN, -1.0
    train(formats.read(file), "unidec", settings=settings, out=folder)
    validation._MIN_GAIN = pays
    for part in ("linear", "links"):
        if (folder / part).is_dir() != has_trees:
            raise SystemExit(f"a model {'with' if has_trees else 'without'} {part}/ is needed, but this is none")
    return folder


def folders_case(work: Path) -> Case:
    """Change one file of a model folder, and use the model."""
    from unidex.errors import UnidexError
    from unidex.model.explanation import explain
    from unidex.model.folder import _hashes
    from unidex.model.model import Model

    folders = [train_model(work), train_model(work, has_trees=True)]
    files = [sorted(str(file.relative_to(one)) for file in one.rglob("*") if file.is_file()) for one in folders]

    def case(rng: random.Random) -> str:
        folder, names = rng.choice(list(zip(folders, files, strict=True)))
        place = work / f"case-{os.getpid()}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place, copy_function=os.link)
        name = rng.choice(names)
        whole = (folder / name).read_bytes()
        (place / name).unlink()
        kind = rng.randrange(8)
        if kind == 0:
            pass  # missing
        elif kind == 1:
            (place / name).write_bytes((folder / rng.choice(names)).read_bytes())
        elif kind == 2:
            (place / name).write_bytes(whole[: rng.randrange(len(whole) + 1)])
        else:
            (place / name).write_bytes(mutated(whole, rng))
        fits = rng.random() < 2 / 3
        if fits and name != "manifest.json":
            format_number = json.loads((folder / "manifest.json").read_text())["format"]
            (place / "manifest.json").unlink()
            (place / "manifest.json").write_text(json.dumps({"format": format_number, "files": _hashes(place)}))
        try:
            model = Model.load(place)
        except UnidexError as error:
            return one_line(error)
        try:
            model.predict(["w0 w1 w30", ""], 3)
            explain(model, "w2 w3 w40", k=2)
        except UnidexError:
            return "refused later"
        return "used"

    return case


# Cases in processes


def run_cases(make: Callable[[Path], Case], first: int, count: int, seed: int, kept: Kept) -> dict[str, Any]:
    """Run cases in processes of their own; a list of faults, each with the number of its case."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        work = Path(folder)
        case = make(work)
        while (number := first + kept.cases) < first + count and len(kept.faults) < 20:
            end = min(number + PER_PROCESS, first + count)
            told = work / "told.jsonl"
            told.write_text("")
            process = os.fork()
            if not process:
                run_here(case, range(number, end), seed, told)
            status, cpu_seconds = watch(process, told)
            lines = [json.loads(line) for line in told.read_text().splitlines()]
            outcomes = Counter(line["outcome"] for line in lines if "outcome" in line)
            faults = [line for line in lines if "fault" in line]
            if number + len(lines) < end:
                faults.append({"case": number + len(lines), "fault": f"the process ended with {status}"})
            kept.add(sum(outcomes.values()) + len(faults), outcomes, faults, cpu_seconds, time.monotonic() - started)
            started = time.monotonic()
            shutil.rmtree(work / f"case-{process}", ignore_errors=True)
            shutil.rmtree(work / f"model-{process}", ignore_errors=True)
    return {
        "cases": kept.cases,
        "outcomes": dict(sorted(kept.outcomes.items())),
        "faults": kept.faults,
        "cpu_seconds": round(kept.cpu_seconds, 1),
        "seconds": round(kept.seconds, 1),
    }


class Kept:
    """The sums of what was run, and the file from which a later process continues."""

    def __init__(self, file: Path | None, asked: dict[str, Any]) -> None:
        self.cases, self.cpu_seconds, self.seconds = 0, 0.0, 0.0
        self.outcomes: Counter[str] = Counter()
        self.faults: list[dict[str, Any]] = []
        self._file, self._asked = file, asked
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                row = json.loads(line)
                if row.pop("asked") == asked:
                    self._count(**row)

    def _count(
        self, cases: int, outcomes: dict[str, int], faults: list[dict[str, Any]], cpu_seconds: float, seconds: float
    ) -> None:
        self.cases += cases
        self.outcomes.update(outcomes)
        self.faults += faults
        self.cpu_seconds += cpu_seconds
        self.seconds += seconds

    def add(self, *values: Any) -> None:
        """Count the cases of one process."""
        row = dict(zip(("cases", "outcomes", "faults", "cpu_seconds", "seconds"), values, strict=True))
        self._count(**row)
        if self._file is not None:
            with self._file.open("a") as out:
                out.write(json.dumps({"asked": self._asked, **row}) + "\n")


def watch(process: int, told: Path) -> tuple[int, float]:
    """Wait for the end of a process, and kill it where it tells nothing for long; exit code and CPU seconds."""
    size, since = 0, time.monotonic()
    while True:
        ended, status, used = os.wait4(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        if told.stat().st_size != size:
            size, since = told.stat().st_size, time.monotonic()
        elif time.monotonic() - since > SILENT_SECONDS:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def run_here(case: Case, numbers: range, seed: int, told: Path) -> None:
    """Run cases in this process, and end it."""
    warnings.simplefilter("ignore")
    import logging

    logging.disable()

    def too_long(*_: Any) -> None:
        raise TimeoutError(f"more than {CPU_SECONDS} CPU seconds")

    signal.signal(signal.SIGVTALRM, too_long)
    with told.open("a") as out, Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 2)
        for number in numbers:
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
            try:
                line = {"outcome": case(random.Random(f"{seed}-{number}"))}
            except BaseException as error:
                where = traceback.format_exception(error)[-3:]
                line = {"case": number, "fault": " ".join("".join(where).split())[-600:]}  # type: ignore[dict-item]
            out.write(json.dumps(line) + "\n")
            out.flush()
    os._exit(0)


PARTS = {"lines": (lines_case, 1_000_000), "requests": (requests_case, 100_000), "folders": (folders_case, 10_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all unless given")
    for name, (_, count) in PARTS.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="what was run, from which the same command continues")
    chosen = parser.parse_args()
    failed = False
    for name in chosen.parts or PARTS:
        kept = Kept(chosen.keep, {"part": name, "first": chosen.first, "seed": chosen.seed})
        found = run_cases(PARTS[name][0], chosen.first, getattr(chosen, name), chosen.seed, kept)
        print(json.dumps({"part": name, **found}), flush=True)
        failed |= bool(found["faults"])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
