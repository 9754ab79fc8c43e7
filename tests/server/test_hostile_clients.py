"""The service under attack: whatever is sent, it answers within its form, tells nothing, and then predicts as before.

All of it runs against the process that users run, over its socket; what it logs is read too.
"""

import ast
import hashlib
import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

import unidex
from helpers.command import UNIDEX
from helpers.served import AUTHORISED, TOKEN, served_copy, token_file
from helpers.synthetic import QUICK, topics
from helpers.waits import PATIENCE
from unidex.errors import UnidexError
from unidex.model.model import Model
from unidex.server.security import Tokens
from unidex.verbs.train import train

SOURCE = Path(unidex.__file__).parent
TEXTS = list(topics().test.texts[:4])
# Stands in texts, names, addresses and tokens of the attacks, and may stand in no log.
SECRET = "xyzzy-secret"
STRICT = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
# The answer of uvicorn itself to bytes that are not HTTP.
NOT_HTTP = b"Invalid HTTP request received."
POSTS = ["/v1/predict", "/v1/explain", "/v1/labels", "/v1/labels/1", "/v1/reload", "/", "/nowhere"]
# One server for all examples. Health checks and deadlines depend on the speed of the machine.
EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "topics"
    chosen = ["train.epochs=1", "predict.knn=0.1", "predict.choose_knn=false", "predict.snippet_length=40"]
    train(topics(num_train=120), "unidec", settings=[*QUICK, *chosen], out=out)
    return out


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return token_file(tmp_path_factory.mktemp("secret"), TOKEN, "another-token-of-the-tests")


@pytest.fixture(scope="module")
def running(folder, tokens, tmp_path_factory):
    own = tmp_path_factory.mktemp("own") / "topics"
    with served_copy(folder, own, "--token-file", tokens, "--log-requests") as found:
        yield found


@cache
def predicted(folder, model, changes):
    """What the library predicts from the folder as it is, with this model and these changes."""
    found = Model.load(folder)
    assert model == f"{folder.name}@{found.version}"
    return found.predict(TEXTS, 3)


@pytest.fixture
def service(running):
    """The service; after the attack it must be as the library is, and its log must tell neither faults nor secrets."""
    before = len(running.log)
    yield running
    said = running.log[before:]
    assert running.process.poll() is None, said
    found = running.client.post("/v1/predict", json={"texts": TEXTS, "k": 3}).json()
    journal = running.folder / "changes.jsonl"
    topk = predicted(running.folder, found["model"], journal.read_bytes() if journal.exists() else b"")
    assert [[label["id"] for label in row["labels"]] for row in found["predictions"]] == topk.ids.tolist()
    scores = [[label["score"] for label in row["labels"]] for row in found["predictions"]]
    np.testing.assert_allclose(scores, topk.scores, atol=2e-5)
    for word in ("Traceback", "Internal error", SECRET, TOKEN, *TEXTS):
        assert word not in said, said


def checked(status, headers, body, folder=None):
    """An answer in the form of all answers: strict headers, problems as problems, nothing of the inside."""
    headers = {name.lower(): value for name, value in dict(headers).items()}
    for name, value in STRICT.items():
        assert headers.get(name) == value, (status, name, headers)
    assert "server" not in headers
    assert status < 500, (status, body)
    if status == 400 and body == NOT_HTTP:
        assert headers["connection"] == "close"
    elif status >= 400 and body:
        assert headers["content-type"] == "application/problem+json"
        assert headers["cache-control"] == "no-store"
        problem = json.loads(body)
        assert problem["status"] == status
        assert {"type", "title", "detail"} <= set(problem) <= {"type", "title", "status", "detail", "field"}
        assert len(body) < 2000
    for word in (b"Traceback", b'File "', b"site-packages", b".py", str(SOURCE).encode(), b"/tmp", b"/root"):
        # Answers to what was understood repeat texts of the client, whatever they hold.
        if status >= 400:
            assert word not in body, body
    if folder is not None:
        assert str(folder.parent).encode() not in body, body
    return status


def send(service, method, place, body=None, headers=None):
    answer = service.client.request(method, place, content=body, headers=headers or {})
    checked(answer.status_code, answer.headers, answer.content, service.folder)
    return answer


def raw(service, *parts, pause=0.0, count=None):
    """Bytes on a connection, and so many answers to them, or all until the service ends the connection."""
    received = b""
    with socket.create_connection(service.address, timeout=PATIENCE) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except ConnectionError:
            pass  # The service has had enough; it says why.
        while count is None or received.count(b"HTTP/1.1 ") < count or len(answers_of(received, whole=False)) < count:
            part = connection.recv(1 << 16)
            if not part:
                break
            received += part
    return answers_of(received)


def fuzz(service, sent):
    """All answers to bytes that are followed by the end of the connection."""
    received = b""
    with socket.create_connection(service.address, timeout=PATIENCE) as connection, suppress(ConnectionError):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(1 << 16):
            received += part
    return answers_of(received)


def answers_of(received, whole=True):
    found = []
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        if not end and not whole:
            return found
        assert end, received
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(re.fullmatch(r"HTTP/1\.1 (\d{3}) [\w -]+", first)[1])
        headers = dict(line.split(": ", 1) for line in lines)
        if status == 100:
            received = rest
            continue
        length = int(headers.get("content-length", 0))
        if len(rest) < length and not whole:
            return found
        assert len(rest) >= length, received
        checked(status, headers, rest[:length])
        found.append((status, headers, rest[:length]))
        received = rest[length:]
    return found


def request(method=b"POST", place=b"/v1/predict", headers=b"", body=b'{"text": "a"}', length=True):
    size = b"content-length: %d\r\n" % len(body) if length else b""
    return b"%s %s HTTP/1.1\r\nhost: x\r\n%s%s\r\n%s" % (method, place, headers, size, body)


# What is sent as a body


PIECES = [b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"d800", b"\xff", b"\x00", b"null", b"1e999", b"-", b",", b":"]
LIKE_JSON = st.lists(st.sampled_from([*PIECES, b'"texts"', b'"text"', b'"k"', b'"labels"', b'"uid"']) | st.binary())


@EXAMPLES
@given(st.binary(max_size=400) | LIKE_JSON.map(b"".join), st.sampled_from(POSTS))
def test_any_bytes_as_a_body(running, body, place):
    method = "PATCH" if place.endswith("/1") else "POST"
    answer = send(running, method, place, body, AUTHORISED)
    if place not in ("/v1/reload", "/", "/nowhere"):
        assert answer.status_code in (400, 422)


SOUND = request() + request(b"GET", b"/health", body=b"", length=False)


@EXAMPLES
@given(
    st.binary(min_size=1, max_size=400)
    | st.tuples(st.integers(0, len(SOUND)), st.integers(0, 20), st.binary(max_size=20)).map(
        lambda cut: SOUND[: cut[0]] + cut[2] + SOUND[cut[0] + cut[1] :]
    )
)
def test_any_bytes_on_the_socket(running, sent):
    """Nonsense, and sound requests of which something is missing or other; answers_of looks at all that comes back."""
    assert len(fuzz(running, sent)) <= 3


def test_the_service_still_works_after_random_bytes(service):
    """What was logged under the examples is looked at too."""
    assert "Traceback" not in service.log
    assert "Internal error" not in service.log
    assert TOKEN not in service.log


def test_texts_of_ten_megabytes(service):
    large = SECRET + "x" * 10_000_000
    for place, body, field in (
        ("/v1/predict", {"text": large}, "text"),
        ("/v1/predict", {"texts": ["a", large]}, "texts"),
        ("/v1/explain", {"text": large}, "text"),
        ("/v1/labels", {"text": large}, "text"),
        ("/v1/labels", {"text": "a", "uid": large}, "uid"),
        ("/v1/predict", {"text": "a", "allowed": [large]}, "allowed"),
        ("/v1/predict", {"text": "a", "mode": large}, "mode"),
        ("/v1/predict", {"text": "a", large: 1}, large[:100]),
    ):
        answer = send(service, "POST", place, json.dumps(body), AUTHORISED)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert send(service, "POST", "/v1/predict", b" " * (17 << 20)).status_code == 413


def test_a_body_without_end(service):
    head = request(headers=b"transfer-encoding: chunked\r\n", body=b"", length=False)
    part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with socket.create_connection(service.address, timeout=PATIENCE) as connection:
        connection.sendall(head)
        received = []
        reader = threading.Thread(target=lambda: received.append(connection.recv(1 << 16)))
        reader.start()
        num_parts = 0
        try:
            while num_parts < 10_000:
                connection.sendall(part)
                num_parts += 1
        except OSError:
            pass
        reader.join(PATIENCE)
    assert num_parts < 5000, "the service has read on and on"
    assert b" 413 " in received[0]


DEEP = 100_000
OPEN, CLOSE = b"[" * DEEP, b"]" * DEEP


@pytest.mark.parametrize("place", ["/v1/predict", "/v1/explain", "/v1/labels"])
def test_json_of_many_levels(service, place):
    objects = b'{"text":' * DEEP + b"1" + b"}" * DEEP
    for body in (
        OPEN,
        OPEN + CLOSE,
        objects,
        *(b'{"%s":%s' % (name, OPEN + CLOSE + b"}") for name in (b"text", b"texts", b"k", b"labels", b"allowed", b"x")),
        b'{"text":"a","k":' + objects + b"}",
    ):
        assert send(service, "POST", place, body, AUTHORISED).status_code in (400, 422)
    # About as deep as can be read: what is read must also be shown, which needs a little more.
    for depth in range(930, 1010, 1 if place == "/v1/predict" else 20):
        body = b'{"text":"a","k":' + b"[" * depth + b"]" * depth + b"}"
        assert send(service, "POST", place, body, AUTHORISED).status_code in (400, 422)


NUMBERS = [
    "1e400",
    "-1e400",
    "1e-400",
    "-0",
    "0.1e1",
    "1" * 400,
    "9" * 5000,
    "-" + "9" * 5000,
    "1e99999999999999999999",
]
NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "nan", "0x10", "1_0", "+1", "01", ".5", "1.", "--1", "1e", "\u0661"]


def test_odd_numbers_are_refused_or_answered(service):
    for number in [*NUMBERS, *NO_NUMBERS]:
        for form in ('{"text":"a","k":%s}', '{"text":"a","min_probability":%s}', '{"text":"a","allowed":[%s]}'):
            answer = send(service, "POST", "/v1/predict", (form % number).encode())
            assert answer.status_code in ((200, 400, 422) if number in NUMBERS else (400, 422)), (number, answer.text)
        for place in (f"/v1/labels/{number}", f"/v1/labels?limit={number}", f"/v1/labels/1/similar?k={number}"):
            assert send(service, "GET", place).status_code in (200, 404, 422)


FIELDS = {
    "/v1/predict": ["texts", "text", "k", "mode", "min_probability", "allowed", "forbidden"],
    "/v1/explain": ["text", "k", "labels", "mode"],
    "/v1/labels": ["text", "uid", "labels"],
}
VALUES = [None, True, False, 0, -1, 1.5, 2**70, "", SECRET, [], [None], [[]], [{}], [True], [1.5], {}, {"text": 1}]


@pytest.mark.parametrize("place", FIELDS)
def test_values_of_wrong_types_are_refused(service, place):
    num_labels = service.client.get("/v1/labels").json()["total"]
    sound = {"text": "w0a"} if place != "/v1/labels" else {"text": "w0a", "uid": "L1"}
    for value in VALUES:
        assert send(service, "POST", place, json.dumps(value), AUTHORISED).status_code == 422
        for field in FIELDS[place]:
            answer = send(service, "POST", place, json.dumps(sound | {field: value}), AUTHORISED)
            assert answer.status_code in (200, 201, 409, 422)
            if answer.status_code == 422:
                assert answer.json()["field"]
            if answer.status_code == 201:
                assert (field, value) in [("uid", SECRET), ("uid", None)]
                label = answer.json()["labels"][0]["id"]
                assert send(service, "DELETE", f"/v1/labels/{label}", headers=AUTHORISED).status_code == 200
    assert service.client.get("/v1/labels").json()["total"] == num_labels


def test_of_keys_that_come_twice_the_last_counts_and_all_are_checked(service):
    answer = send(service, "POST", "/v1/predict", b'{"text":"a","k":9,"text":"w0a","k":2}')
    assert len(answer.json()["predictions"][0]["labels"]) == 2
    assert send(service, "POST", "/v1/predict", b'{"text":"a","k":"x","k":2}').status_code == 422
    assert send(service, "POST", "/v1/predict", b'{"text":"a","k":2,"k":[]}').status_code == 422
    assert send(service, "POST", "/v1/predict", b'{"text":"a"' + b',"k":2' * 100_000 + b"}").status_code == 200


UNICODE = [
    "\x00",
    "a\x00b\x7f\x1b[31m",
    "\u202eright to left\u202c\u200f\u200e\u2066\u2069",
    "\ufeffmark",
    "\ufffe\uffff\U0010ffff",
    "e" + "\u0301" * 3000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u0130\u0131\u1e9e\ufb03\u01c5",
    "\r\n\u2028\u2029\x85\x0b\x0c",
    "\u3164\u115f\u2800",
    "</script><script>alert(1)</script>",
    "{{7*7}}${7*7}%s%n{0}",
    "'; DROP TABLE labels; --",
    "\U000e0041" * 500,
]


def test_odd_unicode_is_answered(service):
    """It is predicted for, explained, searched for, and as a name comes back as it was."""
    rows = [as_text_and_as_name(service, text) for text in UNICODE]
    texts = Model.load(service.folder).labels.texts
    for text, row in zip(UNICODE, rows, strict=True):
        assert texts[row["id"]] == f"{text} name"
        removed = send(service, "DELETE", f"/v1/labels/{row['id']}", headers=AUTHORISED)
        assert removed.json()["removed"] == row


def as_text_and_as_name(service, text):
    for place in ("/v1/predict", "/v1/explain"):
        for escaped in (True, False):
            body = json.dumps({"text": text + SECRET}, ensure_ascii=escaped).encode()
            assert send(service, "POST", place, body).status_code == 200
    name = text + " name"
    added = send(service, "POST", "/v1/labels", json.dumps({"uid": name, "text": name}), AUTHORISED)
    assert added.status_code == 201
    (row,) = added.json()["labels"]
    assert (row["uid"], row["text"]) == (name, name)
    found = send(service, "POST", "/v1/predict", json.dumps({"text": text, "allowed": [name]})).json()
    assert [label["uid"] for label in found["predictions"][0]["labels"]] == [name]
    if len(text) < 100:
        listed = service.client.get("/v1/labels", params={"search": name}).json()["labels"]
        assert [label["text"] for label in listed] == [name]
    return row


def test_a_label_of_unicode_spaces_is_refused(service):
    spaces = " \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
    for text in (*spaces, spaces):
        assert send(service, "POST", "/v1/labels", json.dumps({"text": text}), AUTHORISED).status_code == 422
        assert (
            send(service, "POST", "/v1/labels", json.dumps({"text": "a", "uid": text}), AUTHORISED).status_code == 422
        )


def test_lone_surrogates_are_refused(service):
    for half in (
        b"\\ud800",
        b"\\udfff",
        b"\\udc00\\ud800",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
    ):
        for place in ("/v1/predict", "/v1/explain", "/v1/labels"):
            for body in (b'{"text":"%s"}', b'{"text":"a","%s":1}', b'{"text":"a","k":"x","mode":"%s"}'):
                answer = send(service, "POST", place, body % half, AUTHORISED)
                assert answer.status_code in (400, 422)
                assert b"%s" not in body or answer.status_code == 400 or b'"k"' in body
    for half in ("%ed%a0%80", "%ff", "%00", "%c0%80"):
        assert send(service, "GET", f"/v1/labels?search={half}").json()["total"] == 0


# What is sent as HTTP


def test_headers_and_addresses_are_bounded(service):
    long = b"y" * 100_000
    for parts in (
        [request(headers=b"x: " + long + b"\r\n")],
        [request(headers=b"a: b\r\n" * 20_000)],
        [request(headers=long + b": 1\r\n")],
    ):
        ((status, headers, _),) = raw(service, *parts, pause=0.001)
        assert (status, headers["connection"]) == (431, "close")
    for place in (b"/v1/predict?" + long, b"/" + long):
        ((status, headers, _),) = raw(service, request(place=place))
        assert (status, headers["connection"]) == (400, "close")
    assert [status for status, _, _ in raw(service, request(headers=b"x: " + b"y" * 60_000 + b"\r\n"), count=1)] == [
        200
    ]
    many = raw(service, request() * 300, count=300)
    assert [status for status, _, _ in many] == [200] * 300


NEXT = request(b"GET", b"/health", body=b"", length=False)
CHUNKED = b"transfer-encoding: chunked\r\n"
SMUGGLED = {
    "length and chunks": request(headers=CHUNKED, body=b"0\r\n\r\n" + NEXT),
    "chunks and length": request(headers=CHUNKED + b"content-length: 4\r\n", body=b"0\r\n\r\n" + NEXT, length=False),
    "two lengths": request(headers=b"content-length: 0\r\n", body=NEXT),
    "the same length twice": request(headers=b"content-length: 13\r\n"),
    "a list of lengths": request(headers=b"content-length: 13, 13\r\n", length=False),
    "a length with a sign": request(headers=b"content-length: +13\r\n", length=False),
    "a length below 0": request(headers=b"content-length: -1\r\n", length=False),
    "a length of hexadecimal": request(headers=b"content-length: 0xd\r\n", length=False),
    "a length beyond all": request(headers=b"content-length: " + b"9" * 30 + b"\r\n", length=False),
    "a space before the colon": request(headers=b"content-length : 13\r\n", length=False),
    "a length that is folded": request(headers=b"content-length:\r\n 13\r\n", length=False),
    "chunks by another name": request(headers=b"transfer-encoding: xchunked\r\n", body=NEXT, length=False),
    "chunks that are not last": request(headers=b"transfer-encoding: chunked, gzip\r\n", body=NEXT, length=False),
    "chunks behind a mark": request(headers=b"transfer-encoding: \x0bchunked\r\n", body=NEXT, length=False),
    "a chunk beyond all": request(headers=CHUNKED, body=b"f" * 20 + b"\r\n" + NEXT, length=False),
    "a chunk of another length": request(headers=CHUNKED, body=b"3\r\nabcdef\r\n0\r\n\r\n", length=False),
    "line ends of one kind": request().replace(b"\r\n", b"\n"),
    "a line end in a header": request(headers=b"x: a\rcontent-length: 0\r\n"),
    "nothing in a header": request(headers=b"x: a\0b\r\n"),
    "two hosts": request(headers=b"host: y\r\n"),
    "no host": request().replace(b"host: x\r\n", b""),
    "another protocol, with a body": request(headers=b"connection: upgrade\r\nupgrade: h2c\r\n", body=NEXT),
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + NEXT,
    "HTTP/1.2": request().replace(b"HTTP/1.1", b"HTTP/1.2"),
    "a tunnel": request(b"CONNECT", b"127.0.0.1:22"),
    "bytes in the address": request(place=b"/v1/\xc3\xa9"),
}


@pytest.mark.parametrize("sent", SMUGGLED.values(), ids=list(SMUGGLED))
def test_ambiguous_requests_are_refused_and_the_connection_is_closed(service, sent):
    ((status, headers, _),) = raw(service, sent)
    assert (status, headers["connection"]) == (400, "close")


def test_bytes_after_connection_close_are_not_a_request(service):
    for headers in (b"connection: close\r\n", b"connection: upgrade\r\nupgrade: websocket\r\n"):
        ((status, answered, _),) = raw(service, request(b"GET", b"/health", headers, b"", length=False) + NEXT)
        assert (status, answered["connection"]) == (200, "close")


def test_a_prediction_in_one_piece_is_answered_as_one_in_several(service):
    body = json.dumps({"texts": TEXTS, "k": 3}).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(body)
    whole = head + body

    def said(answers):
        """Without the date, which may differ."""
        return [(status, {**headers, "date": ""}, body) for status, headers, body in answers]

    expected = said(raw(service, head, body[:9], body[9:], pause=0.05, count=1))
    assert [status for status, _, _ in expected] == [200]
    assert said(raw(service, whole, count=1)) == expected
    # One after the other on one connection: in one piece, before the answer, and cut anywhere.
    assert said(raw(service, whole * 3, count=3)) == expected * 3
    assert said(raw(service, whole, whole, whole[:40], whole[40:] + whole[:5], whole[5:], count=4)) == expected * 4
    # What looks like a request within another is none.
    hidden = b"POST /v1/predict HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(whole)
    assert [status for status, _, _ in raw(service, hidden, whole, pause=0.05, count=1)] == [400]
    ((status, _, body),) = raw(service, b"GET /health HTTP/1.1\r\nx: ", whole, pause=0.05, count=1)
    assert (status, json.loads(body)) == (200, {"status": "alive"})
    wrong = whole.replace(b'"k": 3', b'"k": 0')
    assert [status for status, _, _ in raw(service, wrong + whole, wrong, whole, count=4)] == [422, 200, 422, 200]
    # Clients that are gone before their answer.
    for _ in range(20):
        with socket.create_connection(service.address, timeout=PATIENCE) as connection:
            connection.sendall(whole)


def test_clients_that_send_slowly_or_never_read_do_not_block_others(service):
    """Requests that come byte by byte, and answers that nobody reads."""
    body = json.dumps({"texts": [SECRET] * 1000, "k": 24}).encode()
    deaf = [socket.create_connection(service.address) for _ in range(20)]
    answers = []
    dribble = [bytes([byte]) for byte in request()]
    slow = threading.Thread(target=lambda: answers.extend(raw(service, *dribble, pause=0.001, count=1)))
    try:
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request(body=body))
        slow.start()
        assert service.predict(["w0a"])
        slow.join(PATIENCE)
    finally:
        for connection in deaf:
            connection.close()
    assert [status for status, _, _ in answers] == [200]


# Names and tokens

TRICKS = [
    "/page/../app.py",
    "/page/%2e%2e/app.py",
    "/page/..%2fapp.py",
    "/page/%2e%2e%2f%2e%2e%2fmodel.py",
    "/page/..%5capp.py",
    "/page/....//app.py",
    "/page//etc/passwd",
    "/page/%2fetc%2fpasswd",
    "/page/index.html%00.js",
    "/page/index.html/",
    "/page/.",
    "/page/%2e%2e",
    "/page/index.HTML",
    "/page/__init__.py",
    "/page/%252e%252e%252fapp.py",
    "//etc/passwd",
    "/../../etc/passwd",
    "/v1/labels/../../etc/passwd",
    "/v1/labels/..%2f..%2fmanifest.json",
    "/static/manifest.json",
    "/changes.jsonl",
    "/.git/config",
    f"/{SECRET}",
]


def test_path_traversal_finds_no_file(service):
    for place in TRICKS:
        ((status, _, body),) = raw(service, request(b"GET", place.encode(), body=b"", length=False), count=1)
        assert status in (404, 422), place
        assert b"root:" not in body


def test_names_of_labels_are_never_paths(service):
    before = {str(file) for file in service.folder.parent.rglob("*")} | {service.folder.parent / "topics/changes.jsonl"}
    for name in (
        "../../escaped",
        "/etc/passwd",
        "..",
        ".",
        "%2e%2e%2f",
        "C:\\x",
        "a/b",
        "manifest.json",
        "-rf",
        "~root",
    ):
        added = send(service, "POST", "/v1/labels", json.dumps({"text": name}), AUTHORISED)
        assert added.status_code == 201
        (row,) = added.json()["labels"]
        assert row["uid"] == name
        assert send(service, "DELETE", f"/v1/labels/{row['id']}", headers=AUTHORISED).status_code == 200
    after = {str(file) for file in service.folder.parent.rglob("*")}
    assert after - {str(file) for file in before} <= {str(service.folder.with_name(".topics.lock"))}


def test_wrong_tokens_are_refused(service):
    right = TOKEN.encode()
    wrong = [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer " + right[:-1],
        b"Bearer " + right + b"x",
        b"Bearer " + right[1:],
        b"Bearer " + right.upper(),
        b"Bearer " + right * 2,
        b"Bearer " + right + b"," + right,
        b"Bearer x, Bearer " + right,
        b"Bearer Bearer " + right,
        b"Bearer \xff\xfe" + SECRET.encode(),
        b"Bearer t\xc3\xb6ken" + SECRET.encode(),
        b"Bearer " + b"x" * 60_000,
        b"Basic " + right,
        b"Digest " + right,
        right,
        b"Bearer null",
        b"Bearer " + hashlib.sha256(right).hexdigest().encode(),
        b"Bearer # of the tests",
    ]
    heads = [b"authorization: " + value + b"\r\n" for value in wrong]
    good = b"authorization: Bearer " + right + b"\r\n"
    heads += [b"", good + good, heads[3] + good, good + heads[3], b"x-" + good, b"cookie: token=" + right + b"\r\n"]
    body = b'{"text":"%s"}' % SECRET.encode()
    total = service.client.get("/v1/labels").json()["total"]
    for head in heads:
        for method, place in ((b"POST", b"/v1/labels"), (b"PATCH", b"/v1/labels/1"), (b"DELETE", b"/v1/labels/1")):
            ((status, headers, said),) = raw(service, request(method, place, head, body), count=1)
            assert (status, headers.get("www-authenticate")) == (401, "Bearer"), (head, said)
            assert right not in said
        assert [status for status, _, _ in raw(service, request(b"POST", b"/v1/reload", head, b""), count=1)] == [401]
    for place in (f"/v1/labels?token={TOKEN}", f"/v1/labels?access_token={TOKEN}"):
        assert send(service, "POST", place, body).status_code == 401
    assert service.client.get("/v1/labels").json()["total"] == total


def test_tokens_are_compared_in_constant_time(monkeypatch):
    """By hashes of one length, with compare_digest alone, and with all of them whichever is right."""
    (allow,) = (
        node
        for node in ast.walk(ast.parse((SOURCE / "server" / "security.py").read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "allow"
    )
    assert not [node for node in ast.walk(allow) if isinstance(node, ast.Compare | ast.If | ast.IfExp | ast.BoolOp)]
    assert not [node for node in ast.walk(allow) if isinstance(node, ast.Break | ast.Continue)]
    assert sum(isinstance(node, ast.Return) for node in ast.walk(allow)) == 1
    calls = {ast.unparse(node.func) for node in ast.walk(allow) if isinstance(node, ast.Call)}
    assert calls == {"_hash", "hmac.compare_digest"}
    seen = []

    def compare(known, given):
        seen.append((len(known), len(given)))
        return known == given

    monkeypatch.setattr("unidex.server.security.hmac.compare_digest", compare)
    tokens = Tokens([TOKEN, "another-token-of-the-tests", "a-third-token-of-the-tests"])
    for token, right in ((TOKEN, True), (TOKEN[:-1], False), ("", False), ("x" * 10_000, False), ("\u0661", False)):
        seen.clear()
        assert tokens.allow(token) is right
        assert seen == [(32, 32)] * 3


def test_the_token_appears_nowhere_else():
    """No other module of the service compares what a client gives as a token, or logs it."""
    for file in (SOURCE / "server").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare):
                assert "credentials" not in ast.unparse(node), file
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
                told = " ".join(ast.unparse(argument) for argument in node.args[1:])
                assert not re.search(r"credential|body|tokens?\b|texts?\b|headers|request\.|'path'", told), (file, told)


# The model folder


def put(file, content):
    """Another file in the place of one: what is mapped from the old one stays."""
    new = file.with_name(".new")
    new.write_bytes(content)
    new.replace(file)


def restore(service, folder):
    """The model as it was, beside what the labels have become."""
    wanted = {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}
    for file in sorted(service.folder.rglob("*"), reverse=True):
        name = file.relative_to(service.folder)
        if file.is_symlink() or (file.is_file() and name not in wanted and name.name != "changes.jsonl"):
            file.unlink()
    for name in wanted:
        place = service.folder / name
        place.parent.mkdir(exist_ok=True)
        if not place.exists() or place.read_bytes() != (folder / name).read_bytes():
            put(place, (folder / name).read_bytes())


def rename_hashes(folder):
    """A manifest that fits: as of somebody who can write the folder."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != "changes.jsonl"]
    names = {str(file.relative_to(folder)): file for file in files if file != folder / "manifest.json"}
    hashes = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in sorted(names.items())}
    put(folder / "manifest.json", json.dumps({"format": 1, "files": hashes}).encode())


def refused(service, *words):
    """The folder as it is now is not taken, by the service or by the library, and the old model continues to serve."""
    before = service.client.get("/v1/model").json()["model"]
    answer = send(service, "POST", "/v1/reload", headers=AUTHORISED)
    assert answer.status_code == 409, answer.text
    said = answer.json()["detail"]
    for word in (*words, f"{before} continues to serve"):
        assert word in said, said
    with pytest.raises(UnidexError):
        Model.load(service.folder)
    assert service.client.get("/v1/model").json()["model"] == before
    assert service.predict(["w0a"])
    return said


@pytest.fixture
def tampered(service, folder):
    """The service, whose folder may be harmed: afterwards it is as it was."""
    yield service
    restore(service, folder)
    assert send(service, "POST", "/v1/reload", headers=AUTHORISED).status_code == 200


def names_of(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_every_file_that_is_damaged_is_named_and_nothing_is_loaded(tampered, folder):
    names = [name for name in names_of(folder) if name != "manifest.json"]
    assert len(names) > 15
    for number, name in enumerate(names):
        file = tampered.folder / name
        whole = file.read_bytes()
        flipped = bytes([whole[0] ^ 1]) + whole[1:]
        longer = whole + b"\n"
        put(file, [whole[: len(whole) // 2], flipped, longer, b""][number % 4])
        refused(tampered, f"topics/{name}: the file changed since the model was saved; copy the model again")
        file.unlink()
        refused(tampered, f"topics/{name}: the file is missing")
        put(file, whole)


def test_files_that_are_cut_short_under_the_service_change_no_answer(tampered, folder):
    """In place, as ``cp`` writes: the system kills a process that reads a mapped file beyond its new end."""
    questions = [
        ("/v1/predict", {"texts": TEXTS, "k": 3}),
        ("/v1/explain", {"text": TEXTS[0], "k": 2}),
        ("/v1/predict", {"texts": TEXTS, "mode": "dual"}),
    ]
    before = [tampered.client.post(place, json=body).json() for place, body in questions]
    names = [name for name in names_of(folder) if name != "manifest.json"]
    for name in names:
        os.truncate(tampered.folder / name, 0)
    assert [tampered.client.post(place, json=body).json() for place, body in questions] == before
    assert tampered.client.get("/v1/labels/3/similar").status_code == 200
    added = send(tampered, "POST", "/v1/labels", json.dumps({"text": "added meanwhile"}), AUTHORISED)
    assert added.status_code == 201
    assert tampered.predict(["added meanwhile"], k=1, mode="dual") == [["added meanwhile"]]
    refused(tampered, f"topics/{names[0]}: the file changed since the model was saved; copy the model again")
    maps = Path(f"/proc/{tampered.process.pid}/maps")
    assert not maps.exists() or str(tampered.folder) not in maps.read_text()


def test_parts_of_different_models_are_refused_even_if_the_manifest_fits(tampered, folder):
    names = [name for name in names_of(folder) if name not in ("manifest.json", "MODEL_CARD.md", "train.jsonl")]
    for number, name in enumerate(names):
        file = tampered.folder / name
        whole = file.read_bytes()
        if number % 2:
            file.unlink()
        else:
            put(file, whole[: len(whole) // 2])
        rename_hashes(tampered.folder)
        refused(tampered)
        put(file, whole)
    # Whole parts of another model.
    other = train(topics(num_labels=12, num_train=60), "unidec", settings=[*QUICK, "train.epochs=1", "encoder.dim=16"])
    other.save(tampered.folder.with_name("other"))
    for name in ("encoder.safetensors", "config.toml", "labels.jsonl", "index/vectors.npy"):
        put(tampered.folder / name, (tampered.folder.with_name("other") / name).read_bytes())
        rename_hashes(tampered.folder)
        refused(tampered)
        restore(tampered, folder)
    shutil.rmtree(tampered.folder.with_name("other"))


MANIFESTS = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"\xff",
    b"[" * 100_000,
    b'{"format": 1, "files": {}}',
    b'{"format": 1, "files": [1]}',
    b'{"format": 1, "files": null}',
    b'{"format": 1, "files": {"../../../etc/passwd": "0"}}',
    b'{"format": 1, "files": {"/etc/passwd": "0"}}',
    b'{"format": 1, "files": {"config.toml": null}}',
    b'{"format": 99, "files": {}}',
    b'{"format": "1", "files": {}}',
]


def test_a_manifest_that_is_not_one_is_refused(tampered):
    for manifest in MANIFESTS:
        put(tampered.folder / "manifest.json", manifest)
        refused(tampered)
    (tampered.folder / "manifest.json").unlink()
    refused(tampered, "topics: a model folder must hold manifest.json")


class Trap:
    """Whoever unpickles this makes a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def test_nothing_is_unpickled(tampered, tmp_path, folder):
    """As a file of its own, as an array of objects, as weights: with a manifest that fits."""
    sprung = tmp_path / "sprung"
    for name in ("encoder.safetensors", "config.toml", "labels.jsonl", "metrics.json"):
        put(tampered.folder / name, pickle.dumps(Trap(sprung)))
        rename_hashes(tampered.folder)
        refused(tampered)
        restore(tampered, folder)
    torch.save({"features": Trap(sprung)}, tmp_path / "weights")
    put(tampered.folder / "encoder.safetensors", (tmp_path / "weights").read_bytes())
    rename_hashes(tampered.folder)
    refused(tampered)
    restore(tampered, folder)
    np.save(tmp_path / "objects.npy", np.array([Trap(sprung)], dtype=object), allow_pickle=True)
    for name in names_of(folder):
        if name.endswith(".npy"):
            put(tampered.folder / name, (tmp_path / "objects.npy").read_bytes())
            rename_hashes(tampered.folder)
            refused(tampered)
            restore(tampered, folder)
    assert not sprung.exists()
    # The trap does work.
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists()


def test_a_part_that_the_manifest_does_not_name_is_refused(tampered):
    for name in ("encoder/pytorch_model.bin", "calibration.json", "index/extra.npy"):
        put(tampered.folder / name, b"{}")
        refused(tampered, f"topics/{name}: a part of a model must be one that its manifest names")
        (tampered.folder / name).unlink()


def test_other_files_in_a_model_folder_are_allowed(tampered):
    put(tampered.folder / "README.md", b"Ours, of May.")
    put(tampered.folder / "model.pkl", b"not read")
    assert send(tampered, "POST", "/v1/reload", headers=AUTHORISED).status_code == 200


def test_a_part_behind_a_link_is_refused(tampered, tmp_path):
    """A folder behind a link has no hashes; a file behind one has, and may be so."""
    shutil.copytree(tampered.folder / "index", tmp_path / "index")
    shutil.rmtree(tampered.folder / "index")
    (tampered.folder / "index").symlink_to(tmp_path / "index")
    refused(tampered, "topics/index")
    (tampered.folder / "index").unlink()
    shutil.copytree(tmp_path / "index", tampered.folder / "index")
    (tampered.folder / "index" / "vectors.npy").unlink()
    (tampered.folder / "index" / "vectors.npy").symlink_to(tmp_path / "index" / "vectors.npy")
    assert send(tampered, "POST", "/v1/reload", headers=AUTHORISED).status_code == 200


def test_serving_a_damaged_model_ends_with_an_error(folder, tmp_path):
    own = tmp_path / "topics"
    shutil.copytree(folder, own)
    put(own / "encoder.safetensors", (own / "encoder.safetensors").read_bytes()[:-8])
    done = subprocess.run([UNIDEX, "serve", own, "--port", "0"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stdout == ""
    file = own / "encoder.safetensors"
    assert done.stderr == f"unidex: {file}: the file changed since the model was saved; copy the model again\n"


CHANGED = [
    b"no change\n",
    b"\x00\xff\n",
    b"[" * 100_000 + b"\n",
    b'{"add": ' + b"[" * 100_000 + b"\n",
    b"null\n",
    b'{"add": [], "remove": []}\n',
    b'{"remove": ["nobody"]}\n',
    b'{"add": [{"uid": "L1", "text": "twice"}]}\n',
    b'{"rename": {"uid": "L1", "text": "\\ud800"}}\n',
    b'{"rename": {"uid": "L1", "text": " "}}\n',
    b'{"add": [{"uid": 7, "text": "x"}]}\n',
    b'{"unknown": 1}\n',
    b'{"model": "0"}\n',
]


def test_a_journal_that_was_tampered_with_is_named_and_predictions_continue(tampered):
    journal = tampered.folder / "changes.jsonl"
    assert send(tampered, "POST", "/v1/labels", b'{"text": "first"}', AUTHORISED).status_code == 201
    whole = journal.read_bytes()
    number = whole.count(b"\n") + 1
    try:
        for line in CHANGED:
            put(journal, whole + line)
            assert tampered.predict(["w0a"])
            answer = tampered.client.post("/v1/labels", json={"text": "lost"}, headers=AUTHORISED)
            assert answer.status_code == 503
            assert f"topics/changes.jsonl:{number}: a line must be a change of labels" in answer.json()["detail"]
            assert str(tampered.folder.parent) not in answer.text
            refused(tampered, f"topics/changes.jsonl:{number}: a line must be")
            put(journal, whole)
            assert send(tampered, "POST", "/v1/reload", headers=AUTHORISED).status_code == 200
        # Its head: of another model.
        put(journal, b'{"model":"%s"}\n' % (b"0" * 64) + whole.partition(b"\n")[2])
        refused(tampered, "topics/changes.jsonl:1: the changes must be of the model in the folder")
    finally:
        put(journal, whole)


def test_a_journal_that_has_shrunk_or_is_not_a_file_is_refused(tampered):
    journal = tampered.folder / "changes.jsonl"
    assert send(tampered, "POST", "/v1/labels", b'{"text": "journalled"}', AUTHORISED).status_code == 201
    whole = journal.read_bytes()
    try:
        put(journal, whole[: whole.index(b"\n") + 1])
        assert tampered.predict(["w0a"])
        answer = tampered.client.post("/v1/labels", json={"text": "lost"}, headers=AUTHORISED)
        assert answer.status_code == 503
        assert "topics/changes.jsonl: changes must only be appended" in answer.json()["detail"]
        journal.unlink()
        journal.mkdir()
        assert tampered.predict(["w0a"])
        refused(tampered, "topics/changes.jsonl")
        journal.rmdir()
    finally:
        put(journal, whole)


# What is written


NO_IMPORTS = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "telnetlib",
    "xmlrpc",
}
NO_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}
ONLY_WITH = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}


def dotted(node):
    """A name as it is written, such as np.load; "" for what is none."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def dangers(source):
    """What a source does that could run what is in a file or in a string."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [name for name in names if name.split(".")[0] in NO_IMPORTS]
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        given = {keyword.arg: getattr(keyword.value, "value", "?") for keyword in node.keywords}
        if called in NO_CALLS:
            found.append(called)
        if called in ONLY_WITH and given.get(ONLY_WITH[called][0]) is not ONLY_WITH[called][1]:
            found.append(called)
        never = ("shell", "trust_remote_code", "allow_pickle")
        found += [name for name in never if given.get(name, False) is not False]
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import os, marshal",
        "eval(x)",
        "exec(compile(x, y, z))",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
        "yaml.load(file)",
        "subprocess.run(x, shell=True)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
    ],
)
def test_the_search_for_dangerous_calls_finds_them(source):
    assert dangers(source)


def test_no_module_unpickles_or_evaluates_strings():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    assert {str(file): dangers(file.read_text(encoding="utf-8")) for file in files} == {str(file): [] for file in files}


# All of it at random; last, as it changes labels

# What no schema can say: which labels and languages there are, whether there are probabilities, that 3.0 is no whole
# number, which bytes are a table (those problems are about the body).
UNSAYABLE = re.compile(
    r"it has no label with|calibrat|whole number, but is [\d.e+]+$|uids of labels must differ|the language must be one"
)


def test_generated_requests_get_the_answers_of_the_openapi_document(service):
    """Schemathesis: all of its checks, on cases that the document allows and on cases that it does not."""
    document = schemathesis.openapi.from_url(f"{service.url}/v1/openapi.json")
    seen = set()

    def check(case):
        answer = case.call(headers=AUTHORISED)
        unsayable = answer.status_code == 422 and (
            UNSAYABLE.search(answer.json()["detail"]) or answer.json().get("field") == "body"
        )
        case.validate_response(
            answer, excluded_checks=[positive_data_acceptance] if unsayable else [], headers=AUTHORISED
        )
        headers = {name: ", ".join(values) for name, values in answer.headers.items()}
        checked(answer.status_code, headers, answer.content, service.folder)
        seen.add((case.method, case.operation.path, answer.status_code))

    for found in document.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:
            try:
                strategy = operation.as_strategy(mode)
                settings(EXAMPLES, max_examples=8, phases=[Phase.generate])(given(strategy)(check))()
            except Unsatisfiable:
                # Nothing can be wrong in a request that takes nothing.
                assert mode is GenerationMode.NEGATIVE
                assert not operation.body
                assert not operation.query
    operations = {(method, path) for method, path, _ in seen}
    assert len(operations) == 16
    assert {status for _, _, status in seen} >= {200, 201, 400, 404, 422}
