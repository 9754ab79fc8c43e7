"""The service as a process of its own, as users run it, and clients of it."""

import http.client
import itertools
import json
import os
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager

import httpx

from helpers import warm_start
from helpers.command import UNIDEX
from helpers.waits import PATIENCE, wait_until

TOKEN = "correct-horse-battery-staple"
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}


class Served:
    """A running ``unidex serve``: ``client`` asks it, ``log`` is what it has said."""

    def __init__(self, folder, *options):
        arguments = ["serve", str(folder), "--port", "0", *map(str, options)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment}
        # Workers are started by the command itself, and read their environment when they start.
        self.process = (
            subprocess.Popen([UNIDEX, *arguments], text=True, **pipe)
            if "--workers" in options
            else warm_start.start(*arguments, **pipe)
        )
        self.log = ""
        self.url = None
        self._said = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._said.wait(PATIENCE), f"the service did not start:\n{self.log}"
        assert self.url, f"the service did not start:\n{self.log}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)
        self.address = self.client.base_url.host, self.client.base_url.port

    def _read(self):
        for line in self.process.stdout:
            self.log += line
            found = re.search(r"^serving .* at (http://\S+)$", line.rstrip())
            if found:
                self.url = found[1]
                self._said.set()
        self._said.set()

    def predict(self, texts, **asked):
        answer = self.client.post("/v1/predict", json={"texts": texts, **asked})
        assert answer.status_code == 200, answer.text
        return [[label["uid"] for label in row["labels"]] for row in answer.json()["predictions"]]

    def wait_for_log(self, *parts):
        """Until the log has all of these; a thread reads it."""
        wait_until(lambda: all(part in self.log for part in parts))

    def stop(self):
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.client.close()


@contextmanager
def served(folder, *options):
    found = Served(folder, *options)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait()
        found.client.close()


@contextmanager
def served_copy(folder, own, *options):
    """A service of a copy of a model folder, which it may change: ``found.folder``."""
    shutil.copytree(folder, own)
    with served(own, *options) as found:
        found.folder = own
        yield found


def token_file(folder, *lines):
    """A file of tokens that its owner alone may read, as the service wants it."""
    file = folder / "tokens"
    file.write_text("".join(f"{line}\n" for line in lines))
    file.chmod(0o600)
    return file


def ask(address, body, connection=None, place="/v1/predict", method="POST", headers=None):
    """One request; (status, what was answered, whether the connection ends). Cheaper than a client of httpx."""
    used = connection or http.client.HTTPConnection(*address, timeout=PATIENCE)
    try:
        used.request(method, place, None if body is None else json.dumps(body), headers or {})
        answer = used.getresponse()
        return answer.status, json.loads(answer.read()), answer.getheader("connection") == "close"
    finally:
        if connection is None:
            used.close()


class Load:
    """Clients that ask all the time, each on its own connection, until they are told that it ends."""

    def __init__(self, address, texts, num_clients=8, **asked):
        self.statuses, self.faults, self.models = [], [], set()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(address, texts[number::num_clients], asked), daemon=True)
            for number in range(num_clients)
        ]

    def _ask(self, address, texts, asked):
        connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
        for text in itertools.cycle(texts):
            try:
                status, answer, ends = ask(address, {"text": text, **asked}, connection)
            except (OSError, http.client.HTTPException) as error:
                self.faults.append(error)
                return
            self.statuses.append(status)
            self.models.add(answer["model"])
            if ends or self._stopped.is_set():
                connection.close()
                return

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def wait_for(self, count):
        """Until so many further answers have come."""
        aim = len(self.statuses) + count
        wait_until(lambda: len(self.statuses) >= aim)

    def join(self):
        """Until all clients have ended."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def __exit__(self, *ended):
        self._stopped.set()
        self.join()
