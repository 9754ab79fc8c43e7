"""Parts of the service on their own: batches, requests, the way in, tokens, deadlines."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.served import ask
from helpers.synthetic import QUICK, topics
from helpers.waits import PATIENCE, wait_until
from unidex.errors import ConfigError
from unidex.server import micro_batches, schemas
from unidex.server import request_bodies as reading
from unidex.server import runner as running
from unidex.server.app import create_app
from unidex.server.counters import Metrics
from unidex.server.gate import IS_GONE, Gate
from unidex.server.limits import Limits
from unidex.server.micro_batches import BATCH_CHARACTERS, BATCH_TEXTS, SHARE_TEXTS, Batches, Job, take
from unidex.server.problems import ProblemError
from unidex.server.security import Tokens
from unidex.server.settings import Settings
from unidex.verbs.pipeline import train

LIMITS = Limits(text_length=20, texts=3, labels=4, k=10, body=10_000, header_seconds=1, body_seconds=1)


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
    server = running.Server(running._config(found, lambda: create_app(found, lambda service: ready.set())))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    server.address = listening.getsockname()
    yield server
    server.should_exit = True
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def nearby(folder):
    """A service with short deadlines."""
    with served_here(folder, LIMITS) as found:
        yield found


@given(
    st.lists(
        st.lists(st.integers(0, 100), min_size=1, max_size=80) | st.just([20_000] * 30) | st.just([1] * 600),
        max_size=12,
    )
)
def test_batches_take_every_text_once_in_order_and_starve_nobody(lengths):
    jobs = deque(Job(["x" * length for length in row], number, None, bool) for number, row in enumerate(lengths))
    taken = dict.fromkeys(range(len(jobs)), 0)
    waited = dict.fromkeys(taken, 0)
    while jobs:
        waiting = list(jobs)
        batch = take(jobs)
        assert batch
        assert sum(last - first for _, first, last in batch) <= BATCH_TEXTS
        characters = sum(len(text) + 1 for job, first, last in batch for text in job.texts[first:last])
        assert characters < BATCH_CHARACTERS + 20_001
        for job, first, last in batch:
            assert taken[job.asked] == first < last
            taken[job.asked] = last
        for job in waiting:
            got = [last - first for other, first, last in batch if other is job]
            waited[job.asked] = 0 if got else waited[job.asked] + 1
            assert waited[job.asked] <= len(waiting)
        small = [job for job in waiting if len(job.texts) <= SHARE_TEXTS]
        if sum(len(job.texts) for job in waiting) <= BATCH_TEXTS and characters < BATCH_CHARACTERS // 2:
            assert all(job.taken == len(job.texts) for job in small)
    assert taken == {number: len(row) for number, row in enumerate(lengths)}


class Echo:
    """Answers each text with itself, and notes the batches; what is asked for may be a fault."""

    def __init__(self):
        self.batches = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def before(self):
        pass

    def answer(self, batch):
        self.batches.append([job.texts[first:last] for job, first, last in batch])
        assert self.may_answer.wait(PATIENCE)
        if any(job.asked == "all" for job, _, _ in batch):
            raise RuntimeError("the whole batch")
        return [ProblemError(422, "own") if job.asked == "own" else job.texts[first:last] for job, first, last in batch]

    def finished(self, job):
        return [text for part in job.parts for text in part]


def test_batches_gather_and_deliver_and_keep_faults_apart():
    async def main():
        echo = Echo()
        batches = Batches(echo, asyncio.get_running_loop())
        assert await batches.submit(["a"], None, bool) == ["a"]
        echo.may_answer.clear()
        first = batches.submit(["first"], None, bool)
        wait_until(lambda: len(echo.batches) == 2)
        futures = [batches.submit([str(number)], None, bool) for number in range(20)]
        wrong = batches.submit(["x"], "own", bool)
        gone = batches.submit(["gone"], None, lambda: True)
        echo.may_answer.set()
        assert await first == ["first"]
        assert await asyncio.gather(*futures) == [[str(number)] for number in range(20)]
        with pytest.raises(ProblemError, match="own"):
            await wrong
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert len(echo.batches) == 3, "requests that waited were not taken together"
        assert ["gone"] not in [texts for batch in echo.batches for texts in batch]
        with pytest.raises(RuntimeError, match="the whole batch"):
            await batches.submit(["x"] * 1000, "all", bool)
        many = [str(number) for number in range(700)]
        assert await batches.submit(many, None, bool) == many
        assert await batches.call(lambda: threading.current_thread().name) == "model"
        with pytest.raises(ZeroDivisionError):
            await batches.call(lambda: 1 // 0)
        batches.stop()

    asyncio.run(main())


def test_a_lone_client_is_not_made_to_wait_for_company(monkeypatch):
    monkeypatch.setattr(micro_batches, "WAIT_SECONDS", 3600)

    async def main():
        batches = Batches(Echo(), asyncio.get_running_loop())
        for _ in range(200):
            await asyncio.wait_for(batches.submit(["a"], None, bool), PATIENCE)
        batches.stop()

    asyncio.run(main())


NAMES = st.sampled_from(["texts", "text", "k", "mode", "min_probability", "allowed", "forbidden", "labels", "uid", "x"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 12)
    | st.integers()
    # 1.0 is a whole number to JSON Schema, and none to the service: no schema can say so.
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer())
    | st.sampled_from(["both", "dual", "classifier", "", " ", "L1"])
    | st.text(max_size=25)
)
LISTS = st.lists(LEAVES, max_size=5) | st.lists(st.dictionaries(NAMES, LEAVES, max_size=3), max_size=5)
BODIES = LEAVES | LISTS | st.dictionaries(NAMES, LEAVES | LISTS | st.text(max_size=25), max_size=4)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "texts": st.lists(st.text(max_size=25), max_size=4),
        "text": st.text(max_size=25),
        "k": st.integers(-1, 12) | st.sampled_from([2.5, 1e300]),
        "mode": st.sampled_from(["both", "dual", None, "best"]),
        "min_probability": st.floats(-0.5, 1.5) | st.integers(0, 2),
        "allowed": st.none() | st.lists(st.text(max_size=3) | st.integers(), max_size=5),
    },
)
LABELS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=25),
        "uid": st.none() | st.text(max_size=25),
        "labels": st.lists(
            st.fixed_dictionaries({"text": st.text(max_size=22)}, optional={"uid": st.none() | st.text(max_size=3)}),
            max_size=5,
        ),
    },
)


def accepted(kind, body):
    try:
        found = reading.decoded(kind, body)
        if kind is schemas.PredictRequest:
            reading.texts_of(found, LIMITS)
        elif kind is schemas.NewLabels:
            reading.new_labels(found, LIMITS)
        elif kind is schemas.RenameRequest:
            reading.check_text(found.text, "text", LIMITS)
    except ProblemError as problem:
        return problem.status != 422
    return True


@pytest.fixture(scope="module")
def document(folder):
    gate = create_app(Settings(folder=folder, limits=LIMITS))
    return gate._app.openapi()


@pytest.mark.parametrize("kind", [schemas.PredictRequest, schemas.NewLabels, schemas.RenameRequest])
def test_requests_are_taken_if_and_only_if_the_description_allows_them(document, kind):
    """Two implementations that know nothing of each other give the same verdict on any body."""
    whole = {"$ref": f"#/components/schemas/{kind.__name__}", "components": document["components"]}
    checker = jsonschema_rs.Draft202012Validator(whole)

    @settings(max_examples=200)
    @given(BODIES | (LIKELY if kind is schemas.PredictRequest else LABELS))
    def verdicts(body):
        assert accepted(kind, json.dumps(body).encode()) == checker.is_valid(body), body

    verdicts()


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_request_or_a_problem(body):
    status = 200
    try:
        reading.decoded(schemas.PredictRequest, body)
    except ProblemError as problem:
        status = problem.status
    assert status in (200, 400, 422)


def test_the_document_is_whole(document):
    """Every reference leads somewhere, every answer says what it is, writing needs a token."""
    for reference in set(json.dumps(document).split('"$ref": "')[1:]):
        assert reference.split('"')[0].rsplit("/", 1)[1] in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["description"]
            assert ("security" in operation) == (
                (path.startswith("/v1/labels") and method != "get") or "reload" in path
            )
            for status, answer in operation["responses"].items():
                assert answer["description"]
                kinds = list(answer["content"])
                assert kinds == (["application/problem+json"] if int(status) >= 400 else kinds)
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_a_body_that_does_not_come_is_given_up(nearby):
    with socket.create_connection(nearby.address, timeout=PATIENCE) as connection:
        started = time.monotonic()
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        answer = connection.recv(4096)
        assert b"408 Request Timeout" in answer
        assert b"connection: close" in answer
        assert b'"status":408' in answer
        assert time.monotonic() - started > 0.9


def ended(connection):
    """Whether the other side closes; what is left of an answer may come before. A timeout says that it does not."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_headers_that_do_not_come_end_the_connection(nearby):
    """Headers that never begin or never end: of the first request, and of one that follows a whole one."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(nearby.address, timeout=PATIENCE)) for _ in range(8)
        ]
        for whole, connection in zip([b"", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"] * 4, connections, strict=True):
            connection.sendall(whole)
            assert not whole or b"200 OK" in connection.recv(4096)
        for number, sent in enumerate([b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n", b"\r\n\r\n"]):
            connections[2 * number].sendall(sent)
            connections[2 * number + 1].sendall(sent or b"\r\n")
        assert all(ended(connection) for connection in connections)


def test_slow_clients_hold_up_nobody(folder):
    """More of them than requests may wait at once: headers that never end, bodies that never come."""
    patient = Limits(concurrent=100, header_seconds=3600, body_seconds=3600)
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
    service = nearby.gate.service
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

        scope = {"type": "http", "method": method, "path": path, "headers": list(headers), IS_GONE: bool}
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


def test_tokens_are_read_and_told_apart(tmp_path, caplog):
    file = tmp_path / "tokens"
    file.write_text("# who\n0123456789abcdef\n\n  another-token-of-ours  \n")
    file.chmod(0o600)
    tokens = Tokens.read(file)
    assert tokens.allow("0123456789abcdef")
    assert tokens.allow("another-token-of-ours")
    for wrong in ("", "0123456789abcde", "0123456789abcdeg", "# who", "\udcff"):
        assert not tokens.allow(wrong)
    assert caplog.text == ""
    file.chmod(0o644)
    Tokens.read(file)
    assert "everybody may read them" in caplog.text
    for bad in ("short", "", "0123456789abcdef\nwith a space in it", "t\u00f6ken-that-is-long-enough"):
        file.write_text(bad)
        with pytest.raises(ConfigError) as refused:
            Tokens.read(file)
        assert not bad or bad.split("\n")[-1] not in str(refused.value)
    with pytest.raises(ConfigError, match="--token-file must be a file"):
        Tokens.read(tmp_path / "nothing")


@given(st.text(max_size=300))
def test_problems_are_one_line_of_json(detail):
    found = msgspec.json.decode(ProblemError(422, detail, field="k").body())
    assert found["status"] == 422
    assert "\n" not in found["detail"]
