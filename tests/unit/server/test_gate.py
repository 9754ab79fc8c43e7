"""The way into the service: deadlines of slow clients, bounds of bodies, answers while it starts and stops."""

import asyncio
import json
import logging
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import httpx
import pytest

from helpers.served import ask
from helpers.synthetic import QUICK, topics
from helpers.waits import PATIENCE
from unidex.server.app import create_app
from unidex.server.counters import Metrics
from unidex.server.gate import Gate
from unidex.server.runner import make_server
from unidex.server.settings import Limits, Settings
from unidex.verbs.train import train

LIMITS = Limits(text_length=20, texts=3, labels=4, k=10, body=10_000, body_seconds=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "topics"
    train(topics(num_train=120), "unidec", settings=[*QUICK, "train.epochs=1"], out=out)
    return out


@contextmanager
def served_here(folder, limits):
    """The service in a thread of this process."""
    listening = socket.create_server(("127.0.0.1", 0))
    found = Settings(folder=folder, limits=limits)
    ready = threading.Event()
    server, service = make_server(found, lambda service: ready.set())
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    yield SimpleNamespace(address=listening.getsockname(), service=service)
    server.should_exit = True
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def nearby(folder):
    """A service with short deadlines."""
    with served_here(folder, LIMITS) as found:
        yield found


def test_a_body_that_does_not_come_is_given_up(nearby):
    with socket.create_connection(nearby.address, timeout=PATIENCE) as connection:
        started = time.monotonic()
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        answer = connection.recv(4096)
        assert b"408 Request Timeout" in answer
        assert b"connection: close" in answer
        assert b'"status":408' in answer
        assert time.monotonic() - started > 0.9


def with_urllib(url, body):
    try:
        urllib.request.urlopen(urllib.request.Request(url, body), timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    raise AssertionError("it was answered")


def with_httpx(url, body):
    answer = httpx.post(url, content=body, timeout=PATIENCE)
    return answer.status_code, answer.content


def with_requests(url, body):
    answer = pytest.importorskip("requests").post(url, data=body, timeout=PATIENCE)
    return answer.status_code, answer.content


def with_curl(url, body, *options):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "--silent", "--show-error", "--write-out", " %{http_code}", "--data-binary", "@-", *options, url]
    done = subprocess.run(command, input=body, capture_output=True)
    assert done.returncode == 0, done.stderr
    answer, status = done.stdout.rsplit(b" ", 1)
    return int(status), answer


def with_curl_at_once(url, body):
    """Without waiting for 100 Continue."""
    return with_curl(url, body, "-H", "Expect:")


@pytest.mark.parametrize("post", [with_urllib, with_httpx, with_requests, with_curl, with_curl_at_once])
def test_ordinary_clients_see_why_a_large_body_is_refused(nearby, post):
    """They send all of it before they read an answer: far more than the buffers of a socket hold."""
    host, port = nearby.address
    status, answer = post(f"http://{host}:{port}/v1/predict", b" " * (30 << 20))
    assert status == 413
    assert json.loads(answer)["detail"].startswith("the body must have at most 10,000 bytes")


def test_slow_clients_hold_up_nobody(folder):
    """More of them than requests may wait at once: headers that never end, bodies that never come."""
    patient = Limits(concurrent=100, body_seconds=3600)
    with served_here(folder, patient) as server, ExitStack() as stack:
        for number in range(150):
            connection = stack.enter_context(socket.create_connection(server.address))
            if number % 2:
                connection.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: x\r\n")
            else:
                connection.sendall(b'POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"te')
        for _ in range(5):
            assert ask(server.address, {"text": "a"})[0] == 200


def test_nobody_may_write_where_there_are_no_tokens(nearby):
    for place, method in (("/v1/labels", "POST"), ("/v1/labels/1", "DELETE"), ("/v1/reload", "POST")):
        status, answer, _ = ask(nearby.address, {"text": "a"}, place=place, method=method)
        assert status == 403
        assert "--token-file" in answer["detail"]
    assert ask(nearby.address, None, place="/v1/model", method="GET")[1]["writable"] is False


def test_a_service_that_is_about_to_stop_says_so_and_answers(nearby):
    service = nearby.service
    assert ask(nearby.address, None, place="/ready", method="GET")[0] == 200
    service.is_draining = True
    try:
        status, answer, ends = ask(nearby.address, None, place="/ready", method="GET")
        assert (status, ends) == (503, True)
        assert "about to stop" in answer["detail"]
        assert ask(nearby.address, {"text": "a"})[0] == 200
        assert ask(nearby.address, None, place="/health", method="GET")[0] == 200
    finally:
        service.is_draining = False


class Door:
    """A service of one answer, for the way in alone."""

    def __init__(self, answer, limits=LIMITS):
        self.limits, self.metrics, self.is_draining = limits, Metrics(), False
        self.settings = Settings(folder=".", limits=limits)
        self.predict = answer


def through(door, *messages, headers=(), method="POST", path="/v1/predict"):
    """What is sent for messages that are received; (status, headers, body)."""
    sent = []

    async def main():
        waiting = list(messages)

        async def receive():
            if not waiting:
                await asyncio.sleep(60)
            return waiting.pop(0)

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"x"), *headers]}
        scope |= {"query_string": b"", "raw_path": path.encode()}
        await (door if isinstance(door, Gate) else Gate(None, door))(scope, receive, send)

    asyncio.run(main())
    if not sent:
        return None
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), body


def part(body, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


def test_before_the_model_is_loaded_only_health_answers(folder):
    gate = create_app(Settings(folder=folder))
    asked = json.dumps({"text": "a"}).encode()
    assert through(gate, part(b""), method="GET", path="/health")[0] == 200
    for method, path, body in (("GET", "/ready", b""), ("GET", "/v1/model", b""), ("POST", "/v1/predict", asked)):
        status, headers, answer = through(gate, part(body), method=method, path=path)
        assert status == 503
        assert headers[b"retry-after"] == b"1"
        assert json.loads(answer)["status"] == 503


def test_a_fault_of_ours_has_a_number_and_no_traceback(caplog):
    async def answer(body, is_gone):
        raise ZeroDivisionError("a-secret-detail")

    with caplog.at_level(logging.ERROR):
        status, headers, body = through(Door(answer), part(b"{}"))
    assert status == 500
    assert headers[b"content-type"] == b"application/problem+json"
    said = json.loads(body)["detail"]
    assert b"Zero" not in body
    assert b"secret" not in body
    number = said.rsplit(" ", 1)[1]
    assert number in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_bodies_are_joined_and_bounded():
    async def answer(body, is_gone):
        return body

    assert through(Door(answer), part(b"a", True), part(b"b", True), part(b"c"))[2] == b"abc"
    assert through(Door(answer), part(b"x" * LIMITS.body))[0] == 200
    for messages in (
        [part(b"x" * (LIMITS.body + 1))],
        [part(b"x" * 6000, True), part(b"x" * 6000, True), part(b"")],
    ):
        status, headers, body = through(Door(answer), *messages)
        assert status == 413
        assert headers[b"connection"] == b"close"
        assert json.loads(body)["detail"].startswith("the body must have at most 10,000 bytes")
    declared = (b"content-length", b"10001")
    assert through(Door(answer), part(b"", False), headers=[declared])[0] == 413
    assert through(Door(answer), part(b"a", True), {"type": "http.disconnect"}) is None
