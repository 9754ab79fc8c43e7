"""The processes of ``benchmarks/serving.py``: the service as users run it, and functions beside it."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

UNIDEX = Path(sys.executable).with_name("unidex")
TOKEN = "token-of-the-benchmark"
spawn = multiprocessing.get_context("spawn")


class Service:
    """``unidex serve`` on a free port."""

    def __init__(self, model: Path, folder: Path, workers: int) -> None:
        tokens = folder / "tokens"
        tokens.write_text(f"{TOKEN}\n", encoding="utf-8")
        tokens.chmod(0o600)
        command = [UNIDEX, "serve", model, "--port", "0", "--workers", str(workers), "--token-file", tokens]
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.log = ""
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self._ready.wait(300)
        found = re.search(r"^serving .* at (http://\S+)$", self.log, re.MULTILINE)
        if found is None:
            self.process.kill()
            raise SystemExit(f"the service must start, but said:\n{self.log}")
        self.url = found[1]
        self.address = (str(urlsplit(self.url).hostname), int(urlsplit(self.url).port or 0))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log += line
            if line.startswith("serving "):
                self._ready.set()
        self._ready.set()

    def ask(self, method: str, place: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request with the token; an answer of 400 or more is an error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + place, data, {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        )
        request.method = method
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def memory_mb(self) -> float:
        """Resident memory of the service and the processes it has started, in MB."""
        pids = [self.process.pid, *_children(self.process.pid)]
        return sum(_resident_kb(pid) for pid in pids) / 1024

    def cpu_seconds(self) -> float:
        """Processor time that they have used so far."""
        total = 0.0
        for pid in [self.process.pid, *_children(self.process.pid)]:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def stop(self) -> None:
        """SIGTERM, as an operator would."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(child) for child in found]


def _resident_kb(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) if found else 0


@contextmanager
def served(model: Path, folder: Path, workers: int) -> Iterator[Service]:
    service = Service(model, folder, workers)
    try:
        yield service
    finally:
        service.stop()


class Running:
    """A function in a process of its own, which sends one result."""

    def __init__(self, function: Callable[..., None], argument: Any, stop: Event | None = None) -> None:
        self._results, sends = spawn.Pipe(duplex=False)
        self._stop = stop
        arguments = (argument, sends) if stop is None else (argument, sends, stop)
        self._process = spawn.Process(target=function, args=arguments, daemon=True)
        self._process.start()
        sends.close()

    def result(self) -> dict[str, Any]:
        """What it has sent; waits for it, after telling it to end where it can be told."""
        if self._stop is not None:
            self._stop.set()
        try:
            found: dict[str, Any] = self._results.recv()
        except EOFError:
            raise SystemExit("a process of the benchmark has failed; its error stands above") from None
        self._process.join()
        return found
