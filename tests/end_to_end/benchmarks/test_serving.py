"""The benchmark of the service runs from end to end, on a small model and with small numbers."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

import serving_load
from helpers.paths import BENCHMARKS
from helpers.synthetic import QUICK, topics
from unidex.data import formats
from unidex.verbs.train import train


def test_every_part_is_measured_and_no_request_fails(tmp_path):
    formats.write(topics(), tmp_path / "data", "xc-raw")
    train(topics(num_test=0), "unidec", settings=[*QUICK, "train.epochs=1"], out=tmp_path / "model")
    numbers = [
        "--rounds",
        "1",
        "--seconds",
        "0.4",
        "--soak",
        "3",
        "--swaps",
        "2",
        "--texts",
        "30",
        "--concurrency",
        "4",
    ]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "serving.py", tmp_path / "model", tmp_path / "data", "--json", *numbers],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["num_labels"], found["num_texts"]) == (24, 30)
    direct = found["throughput"]["direct"]["texts_per_second"]
    for number in (1, 16):
        part = found["throughput"][f"texts_a_request_{number}"]
        assert part["failed"] == 0
        assert part["of_direct"] == pytest.approx(part["texts_per_second"] / direct)
    one = found["throughput"]["texts_a_request_1"]
    assert found["latency"]["rate"] == pytest.approx(one["texts_per_second"] / 2)
    assert 0 < found["latency"]["latency_ms"]["p50"] <= found["latency"]["latency_ms"]["p99"]
    assert found["latency"]["failed"] == 0
    assert (found["soak"]["requests"], found["soak"]["failed"], len(found["soak"]["points"])) == (3, 0, 3)
    swaps = found["swaps"]
    assert (swaps["swaps"], swaps["label_changes"], swaps["versions"], swaps["failed"]) == (2, 10, 3, 0), swaps[
        "faults"
    ]
    assert swaps["requests"] > 0
    assert len(swaps["models"]) >= 2


def test_failed_requests_are_counted_and_reported():
    """A server that answers the first two requests, one of them with an error, and hangs up at the third."""

    async def run():
        answered = 0

        async def serve(reader, writer):
            nonlocal answered
            while answered < 3:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))
                answered += 1
                if answered == 3:
                    break
                body = b'{"predictions":[{"labels":[]}],"model":"a@1"}' if answered == 1 else b'{"status":503}'
                line = b"HTTP/1.1 200 OK" if answered == 1 else b"HTTP/1.1 503 Service Unavailable"
                # In two pieces: an answer need not come as a whole.
                writer.write(line + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:5])
                await writer.drain()
                await asyncio.sleep(0.01)
                writer.write(body[5:])
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        spec = serving_load.Spec(address, ["a", "b"], concurrency=1, requests=3)
        async with server:
            return await serving_load.Load(spec, None).run()

    seen = asyncio.run(run())
    assert (seen.requests, seen.failed, seen.models) == (1, 2, ["a@1"])
    assert seen.faults[0].startswith("HTTP/1.1 503")
    assert seen.faults[1].startswith("the connection was lost")


def test_late_answers_count_from_when_a_request_was_due():
    """One connection, an answer each 30 ms, a request each 10 ms: each waits longer than the one before."""

    async def run():
        async def serve(reader, writer):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.decode().partition("content-length: ")[2].split("\r\n")[0]))
                await asyncio.sleep(0.03)
                body = b'{"predictions":[{"labels":[]}],"model":"a@1"}'
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        spec = serving_load.Spec(server.sockets[0].getsockname(), ["a"], concurrency=1, requests=8, rate=100)
        async with server:
            return await serving_load.Load(spec, None).run()

    seen = asyncio.run(run())
    assert (seen.requests, seen.failed) == (8, 0)
    assert seen.latency_ms["max"] >= 8 * 30 - 7 * 10
    assert seen.latency_ms["p50"] >= 4 * 30 - 4 * 10


def test_requests_cycle_through_all_texts():
    made = serving_load.requests_of(serving_load.Spec(("h", 1), ["a", "b", "c"], texts_a_request=2))
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2])["texts"] for request in made]
    assert bodies == [["a", "b"], ["c", "a"]]
