"""The service under load: throughput beside `model.predict`, latency, a soak, and swaps of the model meanwhile.

Run: OMP_NUM_THREADS=1 python benchmarks/serving.py MODEL DATA [--parts throughput,latency,soak,swaps] [--json]
     [--rounds 3] [--seconds 6] [--concurrency 64] [--soak 100000] [--swaps 10] [--texts 2000] [--workers 1]
     [--text title]

Serves a copy of MODEL with `unidex serve` on a free port and sends it test texts of DATA from another process.

- throughput: `model.predict` over the texts in batches of several sizes, in a process of its own with as many threads
  as the service; the fastest of them is compared with. Then as many requests as 64 connections get answered, with one
  text and with 16 texts per request. One after the other, in several rounds; the median counts. "By CPU" compares CPU
  times a text: the client takes none of these, and other jobs little.
- latency: one text a request at fixed times, at half of the throughput of such requests. It counts from when a request
  was due.
- soak: so many requests, and the memory of the service before, at ten points, and after.
- swaps: while 16 connections ask all the time, the model folder is replaced by a rename and read again, by turns by
  POST /v1/reload and by SIGHUP, and after each swap a label is added, renamed and removed. No request may fail.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import statistics
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import serving_load
from serving_load import Spec
from serving_processes import Running, Service, served, spawn

PARTS = ("throughput", "latency", "soak", "swaps")
DIRECT_BATCHES = (64, 256, 1024)
TEXTS_A_REQUEST = (1, 16)
SOAK_POINTS = 10
SWAP_CONCURRENCY = 16
K = 5


def load(spec: Spec) -> dict[str, Any]:
    """What the generator has seen."""
    return Running(serving_load.run, spec).result()


def predict_in_batches(asked: tuple[str, list[str], float], results: Connection) -> None:
    """Texts a second of `model.predict`, for each size of batches; runs in a process of its own."""
    from unidex.model.model import Model

    folder, texts, seconds = asked
    model = Model.load(folder)
    model.predict(texts, K)  # what is made at first use is made now
    found = {}
    for size in DIRECT_BATCHES:
        done, started, used = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - started < seconds:
            for first in range(0, len(texts), size):
                # As the service answers: with probabilities and shares of known words. Names are not read.
                done += len(model.predict(texts[first : first + size], K))
        found[str(size)] = {
            "texts_per_second": done / (time.perf_counter() - started),
            "cpu_ms_a_text": 1000 * (time.process_time() - used) / done,
        }
    results.send(found)


def throughput(service: Service, model: Path, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    rounds = []
    for _ in range(options.rounds):
        found: dict[str, Any] = Running(predict_in_batches, (str(model), texts, options.seconds)).result()
        best = max(found.values(), key=lambda one: one["texts_per_second"])
        one_round = {"direct": best, "direct_batches": found}
        for texts_a_request in TEXTS_A_REQUEST:
            used = service.cpu_seconds()
            seen = load(
                Spec(
                    service.address,
                    texts,
                    texts_a_request=texts_a_request,
                    concurrency=options.concurrency,
                    seconds=options.seconds,
                    k=K,
                )
            )
            num_texts = seen["requests"] * texts_a_request
            one_round[f"texts_a_request_{texts_a_request}"] = {
                **seen,
                "texts_per_second": num_texts / seen["seconds"],
                "of_direct": num_texts / seen["seconds"] / best["texts_per_second"],
                "cpu_ms_a_text": 1000 * (service.cpu_seconds() - used) / max(1, num_texts),
            }
            own = one_round[f"texts_a_request_{texts_a_request}"]
            own["of_direct_by_cpu"] = best["cpu_ms_a_text"] / own["cpu_ms_a_text"]
        rounds.append(one_round)
    names = [f"texts_a_request_{number}" for number in TEXTS_A_REQUEST]
    return {
        "rounds": rounds,
        "direct": {
            key: statistics.median(one["direct"][key] for one in rounds)
            for key in ("texts_per_second", "cpu_ms_a_text")
        },
        "direct_batches": {
            str(size): {
                key: statistics.median(one["direct_batches"][str(size)][key] for one in rounds)
                for key in ("texts_per_second", "cpu_ms_a_text")
            }
            for size in DIRECT_BATCHES
        },
        **{
            name: {
                key: statistics.median(one[name][key] for one in rounds)
                for key in ("texts_per_second", "of_direct", "of_direct_by_cpu", "cpu_ms_a_text")
            }
            | {
                "failed": sum(one[name]["failed"] for one in rounds),
                "latency_ms": {
                    key: statistics.median(one[name]["latency_ms"][key] for one in rounds)
                    for key in ("p50", "p90", "p99", "max")
                },
            }
            for name in names
        },
    }


def latency(service: Service, texts: list[str], rate: float, options: argparse.Namespace) -> dict[str, Any]:
    rounds = [
        load(Spec(service.address, texts, concurrency=options.concurrency, seconds=options.seconds, rate=rate, k=K))
        for _ in range(options.rounds)
    ]
    return {
        "rate": rate,
        "requests": sum(one["requests"] for one in rounds),
        "failed": sum(one["failed"] for one in rounds),
        "latency_ms": {
            key: statistics.median(one["latency_ms"][key] for one in rounds) for key in ("p50", "p90", "p99", "max")
        },
    }


def soak(service: Service, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    before = service.memory_mb()
    points, requests, failed, seconds = [], 0, 0, 0.0
    for number in range(SOAK_POINTS):
        own = options.soak * (number + 1) // SOAK_POINTS - options.soak * number // SOAK_POINTS
        if own == 0:
            continue
        seen = load(Spec(service.address, texts, concurrency=options.concurrency, requests=own, k=K))
        requests, failed, seconds = requests + seen["requests"], failed + seen["failed"], seconds + seen["seconds"]
        points.append({"requests": requests, "memory_mb": service.memory_mb()})
    return {
        "requests": requests,
        "failed": failed,
        "seconds": seconds,
        "memory_before_mb": before,
        "points": points,
        # The first tenth fills what is remembered of words and labels.
        "growth_mb": points[-1]["memory_mb"] - points[0]["memory_mb"],
    }


def copied(model: Path, folder: Path) -> Path:
    """A copy of a model of another version, with the same answers."""
    shutil.copytree(model, folder)
    card, file = folder / "MODEL_CARD.md", folder / "manifest.json"
    card.write_text(f"{card.read_text(encoding='utf-8')}\nCopy {folder.name}.\n", encoding="utf-8")
    manifest = json.loads(file.read_text(encoding="utf-8"))
    manifest["files"][card.name] = hashlib.sha256(card.read_bytes()).hexdigest()
    file.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return folder


def swaps(service: Service, live: Path, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    copies = [copied(live, live.with_name(name)) for name in ("one", "other")]
    following, old = live.with_name("following"), live.with_name("old")
    changed, faults, seconds = 0, [], []
    versions = {service.ask("GET", "/v1/model")["version"]}
    spec = Spec(service.address, texts, concurrency=SWAP_CONCURRENCY, k=K)
    running = Running(serving_load.run, spec, spawn.Event())
    time.sleep(1)  # the clients are there
    memory = service.memory_mb()
    for number in range(options.swaps):
        shutil.copytree(copies[number % 2], following)
        live.rename(old)
        following.rename(live)
        started = time.monotonic()
        try:
            versions.add(_swap(service, "POST" if number % 2 == 0 else "SIGHUP"))
            seconds.append(time.monotonic() - started)
            changed += _change_labels(service, number)
        except (OSError, TimeoutError) as error:
            said = error.read().decode() if isinstance(error, urllib.error.HTTPError) else ""
            faults.append(f"swap {number + 1}: {error} {said}")
        shutil.rmtree(old)
    after = service.memory_mb()
    seen = running.result()
    return {
        "swaps": len(seconds),
        "seconds_a_swap": statistics.median(seconds) if seconds else None,
        "label_changes": changed,
        "requests": seen["requests"],
        "failed": seen["failed"] + len(faults),
        "faults": [*faults, *seen["faults"]],
        "models": seen["models"],
        "versions": len(versions),
        "memory_before_mb": memory,
        "memory_after_mb": after,
        "latency_ms": seen["latency_ms"],
    }


def _swap(service: Service, how: str) -> str:
    """Let the folder be read again; the version that serves then."""
    before = service.ask("GET", "/v1/model")["version"]
    if how == "POST":
        service.ask("POST", "/v1/reload")
    else:
        service.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        version: str = service.ask("GET", "/v1/model")["version"]
        if version != before:
            return version
        time.sleep(0.02)
    raise TimeoutError(f"the model must be swapped within 120 s of {how}, but is not")


def _change_labels(service: Service, number: int) -> int:
    """Add, rename and remove labels; how many changes were made."""
    rows = service.ask("POST", "/v1/labels", {"labels": [{"text": f"label {number} of {part}"} for part in "ab"]})
    ids = [row["id"] for row in rows["labels"]]
    service.ask("PATCH", f"/v1/labels/{ids[0]}", {"text": f"label {number} with another text"})
    for label in ids:
        service.ask("DELETE", f"/v1/labels/{label}")
    return 2 * len(ids) + 1


def shown(name: str, part: Any, found: dict[str, Any]) -> Iterator[str]:
    """A part of the results as markdown."""
    if name == "num_labels":
        yield f"{part:,} labels, {found['num_texts']:,} texts, {found['workers']} worker(s), "
        yield f"{found['threads']} thread(s), {found['cores']} cores.\n\n"
    elif name == "throughput":
        yield "| | texts/s | of model.predict | of it by CPU | CPU ms per text | p50 ms | p99 ms | failed |\n"
        yield "|---|---|---|---|---|---|---|---|\n"
        for size, one in part["direct_batches"].items():
            numbers = f"{one['texts_per_second']:.0f} | | | {one['cpu_ms_a_text']:.2f}"
            yield f"| model.predict, {size} texts at a time | {numbers} | | | |\n"
        for number in TEXTS_A_REQUEST:
            one = part[f"texts_a_request_{number}"]
            yield (
                f"| {found['concurrency']} connections, {number} text{'s' if number > 1 else ''} a request "
                f"| {one['texts_per_second']:.0f} | {one['of_direct']:.2f} | {one['of_direct_by_cpu']:.2f} "
                f"| {one['cpu_ms_a_text']:.2f} "
                f"| {one['latency_ms']['p50']:.1f} | {one['latency_ms']['p99']:.1f} | {one['failed']} |\n"
            )
        yield "\n"
    elif name == "latency":
        yield "| requests/s | p50 ms | p90 ms | p99 ms | highest ms | requests | failed |\n"
        yield "|---|---|---|---|---|---|---|\n"
        times = " | ".join(f"{part['latency_ms'][name]:.1f}" for name in ("p50", "p90", "p99", "max"))
        yield f"| {part['rate']:.0f} | {times} | {part['requests']:,} | {part['failed']} |\n\n"
    elif name == "soak":
        yield f"Soak: {part['requests']:,} requests in {part['seconds']:.0f} s, {part['failed']} failed.\n\n"
        yield f"| requests | memory MB |\n|---|---|\n| 0 | {part['memory_before_mb']:.0f} |\n"
        for point in part["points"]:
            yield f"| {point['requests']:,} | {point['memory_mb']:.0f} |\n"
        yield "\n"
    elif name == "swaps":
        yield (
            f"Swaps: {part['swaps']} of the model, {part['label_changes']} changes of labels, {part['requests']:,} "
            f"requests meanwhile, {part['failed']} failed; p99 {part['latency_ms']['p99']:.0f} ms, memory "
            f"{part['memory_before_mb']:.0f} MB before and {part['memory_after_mb']:.0f} MB after.\n"
        )
        for fault in part["faults"]:
            yield f"- {fault}\n"


def measured(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """What was measured, by name, as soon as it is."""
    from unidex.data.formats import read
    from unidex.data.read_options import ReadOptions

    texts = list(read(options.data, ReadOptions(text=options.text)).test.texts)[: options.texts]
    threads = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))
    yield "num_texts", len(texts)
    yield "workers", options.workers
    yield "threads", threads
    yield "cores", len(os.sched_getaffinity(0))
    yield "concurrency", options.concurrency
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        live = folder / options.model.resolve().name
        shutil.copytree(options.model, live)
        with served(live, folder, options.workers) as service:
            yield "num_labels", service.ask("GET", "/v1/model")["num_labels"]
            rate = options.rate
            if "throughput" in options.parts:
                found = throughput(service, live, texts, options)
                rate = rate or found["texts_a_request_1"]["texts_per_second"] / 2
                yield "throughput", found
            if "latency" in options.parts:
                yield "latency", latency(service, texts, rate, options)
            if "soak" in options.parts:
                yield "soak", soak(service, texts, options)
            if "swaps" in options.parts:
                yield "swaps", swaps(service, live, texts, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("data", help="a data set, whose test texts are sent")
    parser.add_argument("--text", default="title+content")
    parser.add_argument("--parts", type=lambda names: names.split(","), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, help="requests a second for the latency; half of the throughput if left out"
    )
    parser.add_argument("--soak", type=int, default=100_000, help="requests")
    parser.add_argument("--swaps", type=int, default=10)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown or ("latency" in options.parts and "throughput" not in options.parts and not options.rate):
        parser.error(f"--parts must be of {', '.join(PARTS)}; latency needs throughput or --rate")
    found: dict[str, Any] = {}
    for name, part in measured(options):
        found[name] = part
        if not options.json:
            print("".join(shown(name, part, found)), end="", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
