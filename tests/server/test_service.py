"""The service as users run it: answers, limits, tokens, labels that come and go, one process of its own."""

import contextlib
import io
import json
import re
import shutil
import signal
import socket
import zipfile
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import numpy as np
import pytest

from helpers.served import AUTHORISED, TOKEN, Load, ask, served, served_copy, token_file
from helpers.synthetic import QUICK, topics
from helpers.waits import PATIENCE, wait_until
from unidex.errors import ConfigError
from unidex.model.model import Model
from unidex.server import schemas
from unidex.verbs.labels import similar_labels
from unidex.verbs.train import train

TEXTS = list(topics().test.texts)
MAX_BODY = 300_000
MAX_TEXT = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "topics"
    train(topics(), "unidec", settings=[*QUICK, "predict.knn=0.1", "predict.choose_knn=false"], out=out)
    return out


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return token_file(tmp_path_factory.mktemp("secret"), "# of the tests", TOKEN)


@pytest.fixture(scope="module")
def service(folder, tokens, tmp_path_factory):
    own = tmp_path_factory.mktemp("own") / "topics"
    limits = ("--max-body", MAX_BODY, "--max-text-length", MAX_TEXT, "--max-concurrent", 32)
    with served_copy(folder, own, "--token-file", tokens, "--log-requests", *limits) as found:
        yield found


@pytest.fixture(scope="module")
def model(folder):
    return Model.load(folder)


def problem(answer, status, *words, field=None):
    """An answer is a problem as RFC 9457 has it, and says so much."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["type"] == "about:blank"
    assert found["status"] == status
    assert found.get("field") == field, found
    for word in words:
        assert word in found["detail"], found
    return found


def expected(model, texts, k=5, **more):
    found = model.predict(texts, k, **more)
    return [
        [(label, round(score, 5)) for label, score in zip(*row, strict=True) if label >= 0]
        for row in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
    ]


def rows(answer):
    assert answer.status_code == 200, answer.text
    return rows_of(answer.json())


def rows_of(answer):
    found = msgspec.convert(answer, schemas.PredictAnswer)
    # What the description says, and nothing more.
    assert msgspec.to_builtins(found) == answer
    return [[(label.id, round(label.score, 5)) for label in row.labels] for row in found.predictions]


def alike(found, wanted):
    """The same labels; scores may differ in their last digits, as products of other batches do."""
    assert [[label for label, _ in row] for row in found] == [[label for label, _ in row] for row in wanted]
    for row, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose([score for _, score in row], [score for _, score in other], atol=2e-5)


@pytest.mark.parametrize("asked", [{}, {"k": 1}, {"k": 24}, {"mode": "dual"}, {"mode": "classifier", "k": 3}])
def test_the_service_predicts_as_the_model_does(service, model, asked):
    alike(rows(service.client.post("/v1/predict", json={"texts": TEXTS, **asked})), expected(model, TEXTS, **asked))


def test_a_label_has_its_text_uid_and_frequency(service, model):
    answer = service.client.post("/v1/predict", json={"text": TEXTS[0], "k": 1}).json()
    (label,) = answer["predictions"][0]["labels"]
    assert list(label) == ["id", "uid", "text", "score", "probability", "frequency"]
    assert label["uid"] == model.labels.uids[label["id"]]
    assert label["text"] == model.labels.texts[label["id"]]
    assert label["frequency"] == model.labels.frequency_class(label["id"])
    assert answer["model"] == f"topics@{model.version}"


def test_a_table_comes_back_with_labels_and_bad_ones_are_refused(service):
    def post(body, **asked):
        return service.client.post("/v1/predict/table", params=asked, content=body)

    answer = post(f"id\ttext\n7\t{TEXTS[0]}\n8\t\n".encode(), source="tsv", target="jsonl", k=2)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="labels.jsonl"'
    first, blank = map(json.loads, answer.text.splitlines())
    uids = service.predict([TEXTS[0]], k=2)[0]
    assert [first["text"], first["uid_1"], first["uid_2"]] == [TEXTS[0], *uids]
    assert blank.get("uid_1") is None
    bad = {"csv": b"a,b\n1\n", "tsv": b"a\tb\n1\n", "jsonl": b"[1]\n", "xlsx": b"PK\x03\x04 no archive"}
    for kind, more in bad.items():
        for body in (b"", b"\x00\xff\x89PNG", more):
            problem(post(body, source=kind), 422, field="body")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", bytes(16 * MAX_BODY + 1))
    problem(post(bomb.getvalue(), source="xlsx"), 422, "when unpacked", field="body")
    problem(post(b"text\na\n", k=101), 422, field="k")
    problem(post(b"text\na\n", column="b"), 422, "b", field="body")


def test_an_answer_says_how_much_of_a_text_is_known(service):
    texts = ["qwertz asdfgh", TEXTS[0], f"{TEXTS[0]} qwertz"]
    answer = service.client.post("/v1/predict", json={"texts": texts, "k": 1}).json()
    num_words = len(TEXTS[0].split())
    wanted = [0.0, 1.0, round(num_words / (num_words + 1), 6)]
    assert [found["known"] for found in answer["predictions"]] == pytest.approx(wanted, abs=1e-6)


def test_allowed_and_forbidden_labels(service, model):
    answer = service.client.post("/v1/predict", json={"texts": TEXTS, "k": 2, "allowed": ["L3", 5, "L9"]})
    alike(rows(answer), expected(model, TEXTS, 2, allowed=[3, 5, 9]))
    best = model.predict(TEXTS, 1).ids[:, 0].tolist()
    answer = service.client.post("/v1/predict", json={"texts": TEXTS, "forbidden": sorted(set(best))})
    alike(rows(answer), expected(model, TEXTS, forbidden=best))
    wrong = service.client.post("/v1/predict", json={"text": "a", "allowed": ["L3", "L99"]})
    problem(wrong, 422, "no label with uid 'L99'", field="allowed")
    wrong = service.client.post("/v1/predict", json={"text": "a", "forbidden": [24]})
    problem(wrong, 422, "no label with id 24", field="forbidden")


def test_requests_that_come_together_are_answered_as_alone(service, model):
    """Different k, modes and lists in one batch, and one request that is wrong."""
    kinds = [{}, {"k": 2}, {"k": 9}, {"mode": "dual"}, {"allowed": [1, 2, 3]}, {"forbidden": [0]}, {"k": 3}]
    before = batches(service)

    def asked(number):
        if number % 8 == 7:
            return ask(service.address, {"text": "a", "allowed": ["nobody"]})
        return ask(service.address, {"text": TEXTS[number % 60], **kinds[number % 8]})

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(asked, range(96)))
    for number, (status, answer, _) in enumerate(answers):
        if number % 8 == 7:
            assert (status, answer["field"]) == (422, "allowed")
        else:
            alike(rows_of(answer), expected(model, [TEXTS[number % 60]], **kinds[number % 8]))
    after = batches(service)
    assert after[1] - before[1] == 96
    assert after[0] - before[0] < 96, "no two requests were worked on together"


def batches(service):
    """Batches so far, and their texts."""
    metrics = service.client.get("/metrics").text
    return [
        float(re.search(rf"^unidex_batch_texts_{what} (\S+)$", metrics, re.MULTILINE)[1]) for what in ("count", "sum")
    ]


def test_a_large_request_is_answered_in_order_and_holds_up_no_other(service, model):
    many = [TEXTS[number % 60] for number in range(1000)]
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(httpx.post, f"{service.url}/v1/predict", json={"texts": many, "k": 2}, timeout=PATIENCE)
        small = [service.client.post("/v1/predict", json={"text": TEXTS[0]}) for _ in range(3)]
        assert all(answer.status_code == 200 for answer in small)
        alike(rows(large.result()), expected(model, many, 2))


@pytest.mark.parametrize(
    ("body", "words", "field"),
    [
        ({"texts": ["a"] * 1025}, ["at most 1,024", "1,025"], "texts"),
        ({"texts": ["a", "b" * (MAX_TEXT + 1)]}, ["at most 3,000 characters", "3,001"], "texts"),
        ({"text": "b" * (MAX_TEXT + 1)}, ["3,001"], "text"),
        ({"text": "a", "k": 101}, ["at most 100", "101"], "k"),
        ({"text": "a", "k": 0}, ["at least 1", "but is 0"], "k"),
        ({"text": "a", "k": "five"}, ["whole number", "'five'"], "k"),
        ({"text": "a", "k": 10**30}, ["k must be"], "k"),
        ({"text": "a", "mode": "best"}, ["both, dual or classifier", "'best'"], "mode"),
        ({"text": "a", "min_probability": 1.5}, ["at most 1", "1.5"], "min_probability"),
        ({"text": "a", "min_probability": 0.5}, ["calibrat"], "min_probability"),
        ({"text": "a", "texts": ["b"]}, ["both"], "texts"),
        ({"k": 3}, ["neither"], "texts"),
        ({"texts": []}, ["at least 1 entries"], "texts"),
        ({"texts": ["a", 7]}, ["a string"], "texts"),
        ({"text": "a", "limit": 3}, ["no fields but", "'limit'"], "limit"),
        (["a"], ["the body must be an object"], None),
    ],
)
def test_a_field_that_is_wrong_is_named(service, body, words, field):
    problem(service.client.post("/v1/predict", json=body), 422, *words, field=field)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b'{"text": "\xff"}', b'{"k": NaN}', b'{"text": "a"} x', b'{"text": "\\ud800"}']
)
def test_a_body_that_is_not_json_is_refused(service, body):
    problem(service.client.post("/v1/predict", content=body), 400, "must be JSON")


def test_a_body_that_is_too_large_is_not_read_to_its_end(service):
    problem(
        service.client.post("/v1/predict", content=b"x" * (MAX_BODY + 1)), 413, f"{MAX_BODY:,}", f"{MAX_BODY + 1:,}"
    )
    sent = []

    def parts():
        for _ in range(400):
            sent.append(1)
            yield b" " * 1_000_000

    # The connection may be cut while it is still sending.
    with contextlib.suppress(httpx.WriteError):
        problem(httpx.post(f"{service.url}/v1/predict", content=parts()), 413)
    # 128 MiB are read and discarded, so that ordinary clients see the answer; and no more.
    assert len(sent) < 400
    rows(service.client.post("/v1/predict", json={"text": "a"}))


def test_more_requests_than_allowed_get_429(service):
    body = {"texts": TEXTS * 3, "k": 1}
    with ThreadPoolExecutor(60) as pool:
        answers = list(pool.map(lambda _: ask(service.address, body), range(60)))
    refused = [answer for status, answer, _ in answers if status == 429]
    assert 1 <= len(refused) <= 28
    assert all("32 requests" in answer["detail"] for answer in refused)
    done = [rows_of(answer) for status, answer, _ in answers if status == 200]
    assert len(done) == 60 - len(refused)
    assert all(found == done[0] for found in done)


def test_unknown_paths_and_methods_are_refused(service):
    problem(service.client.get("/v2/predict"), 404, "nothing at this address")
    problem(service.client.get("/v1/labels/"), 404)
    answer = service.client.get("/v1/predict")
    problem(answer, 405, "POST", "'GET'")
    assert answer.headers["allow"] == "POST"
    answer = service.client.put("/v1/labels")
    problem(answer, 405)
    assert answer.headers["allow"] == "GET, HEAD, POST"
    problem(service.client.get("/v1/labels/999"), 404, "no label with id 999", field="id")
    problem(service.client.get("/v1/labels/x"), 422, field="id")
    problem(service.client.get(f"/v1/labels/{10**30}"), 404, field="id")
    problem(service.client.get("/v1/labels?limit=0"), 422, "limit must", field="limit")
    problem(service.client.get("/v1/labels?frequency=often"), 422, "'head', 'torso' or 'tail'", field="frequency")
    problem(service.client.get("/v1/labels/1/similar?k=101"), 422, "at most 100", field="k")


def test_bytes_that_are_not_http_get_400_and_the_connection_is_closed(service):
    with socket.create_connection(service.address, timeout=PATIENCE) as connection:
        connection.sendall(b"what is this\r\n\r\n")
        assert b"400 Bad Request" in connection.recv(4096)
    answer = service.client.get("/v1/model", headers={"x": "y" * 100_000})
    problem(answer, 431, "at most 65,536 bytes")
    assert answer.headers["connection"] == "close"


def test_the_page_is_sent_once_and_has_strict_headers(service):
    page = service.client.get("/", headers={"accept-encoding": "identity"})
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "onclick=" not in page.text
    assert "style=" not in page.text
    files = set(re.findall(r'(?:src|href)="(page/[^"]+)"', page.text))
    assert files
    for name in {"/", *(f"/{file}" for file in files)}:
        plain = service.client.get(name, headers={"accept-encoding": "identity"})
        again = service.client.get(name, headers={"if-none-match": plain.headers["etag"]})
        assert again.status_code == 304
        assert again.content == b""
    for trick in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/nothing.js", "/page/"):
        problem(httpx.get(service.url + trick), 404)
    head = service.client.head("/", headers={"accept-encoding": "identity"})
    assert (head.headers["content-length"], head.content) == (str(len(page.content)), b"")


def test_labels_are_listed_and_found(service, model):
    listed = service.client.get("/v1/labels", params={"limit": 5}).json()
    assert listed["total"] == 24
    by_frequency = sorted(range(24), key=lambda label: (-int(model.labels.frequencies[label]), label))
    assert [row["id"] for row in listed["labels"]] == by_frequency[:5]
    second = service.client.get("/v1/labels", params={"limit": 5, "offset": 5}).json()
    assert [row["id"] for row in second["labels"]] == by_frequency[5:10]
    word = model.labels.texts[7].split()[0]
    found = service.client.get("/v1/labels", params={"search": word.upper()}).json()
    assert 7 in [row["id"] for row in found["labels"]]
    assert all(word in row["text"] for row in found["labels"])
    by_text = service.client.get("/v1/labels", params={"order": "text"}).json()["labels"]
    assert [row["text"] for row in by_text] == sorted(model.labels.texts)
    torso = service.client.get("/v1/labels", params={"frequency": "torso", "limit": 100}).json()
    assert torso["total"] == sum(model.labels.frequency_class(label) == "torso" for label in range(24))
    row = service.client.get("/v1/labels/7").json()
    assert row == {
        "id": 7,
        "uid": "L7",
        "text": model.labels.texts[7],
        "frequency": model.labels.frequency_class(7),
        "num_texts": int(model.labels.frequencies[7]),
    }
    near = service.client.get("/v1/labels/7/similar", params={"k": 3}).json()
    assert near["label"] == row
    assert len(near["similar"]) == 3
    assert 7 not in [other["id"] for other in near["similar"]]
    found = [msgspec.to_builtins(other) for other in similar_labels(model, 7, 3)]
    assert near["similar"] == found
    former = service.client.get("/v1/labels/7/neighbours", params={"k": 3}).json()
    assert former == {"label": row, "neighbours": near["similar"]}


def test_a_text_is_explained(service, model):
    answer = service.client.post("/v1/explain", json={"text": TEXTS[0], "k": 2})
    found = msgspec.json.decode(answer.content, type=schemas.ExplainAnswer)
    assert [reason.id for reason in found.labels] == model.predict([TEXTS[0]], 2).ids[0].tolist()
    for reason in found.labels:
        assert sum(value for value in msgspec.to_builtins(reason.parts).values()) == pytest.approx(
            reason.score, abs=1e-5
        )
    named = service.client.post("/v1/explain", json={"text": TEXTS[0], "labels": ["L3", 4]}).json()
    assert [reason["id"] for reason in named["labels"]] == [3, 4]
    problem(service.client.post("/v1/explain", json={"text": "a", "labels": ["nobody"]}), 422, field="labels")
    problem(service.client.post("/v1/explain", json={"text": "a", "labels": []}), 422, field="labels")


def test_the_model_route_describes_the_model(service, model):
    found = msgspec.json.decode(service.client.get("/v1/model").content, type=schemas.ModelAnswer)
    assert found.model == f"topics@{model.version}"
    assert found.num_train == 240
    assert found.modes == ["both", "dual", "classifier"]
    assert found.writable
    assert found.limits == schemas.RequestLimits(MAX_TEXT, 1024, MAX_BODY, 100, 32)


def test_labels_can_be_changed_only_with_a_token(service):
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
    ):
        for method, place in (("POST", ""), ("PATCH", "/1"), ("DELETE", "/1"), ("POST", "/1/teach")):
            answer = service.client.request(method, f"/v1/labels{place}", headers=headers, json={"text": "new"})
            problem(answer, 401, "Bearer TOKEN")
            assert answer.headers["www-authenticate"] == "Bearer"
        problem(service.client.post("/v1/reload", headers=headers), 401)
    assert service.client.get("/v1/labels").json()["total"] == 24


def test_a_label_is_added_renamed_and_removed(service):
    client = service.client
    answer = client.post("/v1/labels", json={"uid": "new", "text": "w0a w60i"}, headers=AUTHORISED)
    assert answer.status_code == 201
    (row,) = answer.json()["labels"]
    assert row | {"id": 0} == {"id": 0, "uid": "new", "text": "w0a w60i", "frequency": "tail", "num_texts": 0}
    assert "new" in service.predict(["w0a w60i"], k=2)[0]
    again = client.post("/v1/labels", json={"uid": "new", "text": "other"}, headers=AUTHORISED)
    problem(again, 409, "already 'new'", field="uid")
    twice = client.post("/v1/labels", json={"labels": [{"text": "x"}, {"text": "x"}]}, headers=AUTHORISED)
    problem(twice, 422, "must differ")
    renamed = client.patch(f"/v1/labels/{row['id']}", json={"text": "w3d w61j"}, headers=AUTHORISED)
    assert renamed.json()["label"] == row | {"text": "w3d w61j"}
    found = client.post("/v1/predict", json={"text": "w3d w61j", "k": 2}).json()["predictions"][0]["labels"]
    assert "w3d w61j" in [label["text"] for label in found]
    assert Model.load(service.folder).labels.texts[row["id"]] == "w3d w61j"
    removed = client.delete(f"/v1/labels/{row['id']}", headers=AUTHORISED)
    assert removed.json()["removed"] == row | {"text": "w3d w61j"}
    assert "new" not in service.predict(["w3d w61j"], k=24)[0]
    problem(client.delete(f"/v1/labels/{row['id']}", headers=AUTHORISED), 404, field="id")
    problem(client.patch(f"/v1/labels/{row['id']}", json={"text": "x"}, headers=AUTHORISED), 404, field="id")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"uid": "only"}, "text"),
        ({"text": ""}, "text"),
        ({"text": "  \n"}, "text"),
        ({"text": "a", "uid": ""}, "uid"),
        ({"text": "a" * (MAX_TEXT + 1)}, "text"),
        ({"labels": []}, "labels"),
        ({"labels": [{"text": 3}]}, "text"),
        ({"labels": [{"text": "a"}], "text": "b"}, "text"),
        ({"labels": [{"text": "a"}], "uid": "b"}, "text"),
    ],
)
def test_an_invalid_label_is_refused(service, body, field):
    problem(service.client.post("/v1/labels", json=body, headers=AUTHORISED), 422, field=field)
    assert service.client.get("/v1/labels").json()["total"] == 24


def test_teaching_needs_a_label_and_texts(service):
    def teach(label, body):
        return service.client.post(f"/v1/labels/{label}/teach", json=body, headers=AUTHORISED)

    problem(teach(99, {"texts": ["a"]}), 404, field="id")
    problem(teach(1, {"texts": []}), 422, field="texts")
    problem(teach(1, {"texts": ["a", "  "]}), 422, field="texts")
    problem(teach(1, {"texts": ["a" * (MAX_TEXT + 1)]}), 422, field="texts")
    assert service.client.get("/v1/labels/1").json()["num_texts"] == Model.load(service.folder).labels.row(1).num_texts


def test_command_line_and_service_see_the_same_labels(service):
    model = Model.load(service.folder)
    model.change({"add": [{"uid": "from-outside", "text": "w5f w62k"}]})
    assert "from-outside" in service.predict(["w5f w62k"], k=2)[0]
    model.change({"remove": ["from-outside"]})
    assert "from-outside" not in service.predict(["w5f w62k"], k=24)[0]


def test_a_damaged_journal_does_not_stop_predictions(service):
    journal = service.folder / "changes.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"no change\n")
    assert service.predict(TEXTS[:1])
    answer = service.client.post("/v1/labels", json={"text": "lost"}, headers=AUTHORISED)
    problem(answer, 503, "changes.jsonl:", "must be a change of labels")
    journal.write_bytes(whole)
    assert service.client.post("/v1/reload", headers=AUTHORISED).status_code == 200
    assert service.client.get("/v1/labels").json()["total"] == 24


def test_a_locked_folder_gives_503(service):
    from unidex.storage.locks import locked

    with locked(service.folder):
        answer = service.client.post("/v1/labels", json={"text": "too soon"}, headers=AUTHORISED)
        assert service.predict(TEXTS[:1])
    problem(answer, 503, "only one process at a time")
    assert "retry-after" in answer.headers


def test_requests_of_disconnected_clients_are_not_computed(service):
    before = batches(service)[1]
    body = json.dumps({"texts": TEXTS * 16, "k": 100}).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    for _ in range(8):
        with socket.create_connection(service.address) as connection:
            connection.sendall(head + body)
    rows(service.client.post("/v1/predict", json={"text": "a"}))
    wait_until(lambda: "\nunidex_queue_requests 0.0" in service.client.get("/metrics").text)
    assert batches(service)[1] - before < 8 * len(TEXTS) * 16


def test_metrics_count_requests_and_rejections(service):
    assert service.client.get("/v1/openapi.json").json()["openapi"].startswith("3.")
    assert service.client.get("/docs").headers["content-type"].startswith("text/html")
    metrics = service.client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        r'unidex_requests_total{route="/v1/predict",status="200"} \d+',
        r'unidex_requests_total{route="none",status="404"} \d+',
        r'unidex_requests_total{route="/v1/openapi.json",status="200"} \d+',
        r'unidex_requests_total{route="/docs",status="200"} \d+',
        r'unidex_request_seconds_bucket{le="0.05",route="/v1/predict"} \d+',
        r'unidex_model_info{name="topics",version="[0-9a-f]{12}"} 1.0',
        r"unidex_labels 24.0",
        r'unidex_label_changes_total{change="add"} \d+',
        r'unidex_rejected_total{reason="token"} \d+',
        r"unidex_queue_requests \d+",
    ):
        assert re.search(rf"^{line}", metrics.text, re.MULTILINE), line


def test_the_log_holds_neither_texts_nor_tokens(service):
    service.client.post("/v1/predict", json={"text": "a-secret-text"})
    service.client.get("/v1/labels", params={"search": "a-secret-search"})
    service.client.get("/a-secret-path")
    service.client.post("/v1/labels", json={"text": ""}, headers=AUTHORISED)
    service.wait_for_log("POST /v1/predict 200", "GET /v1/labels 200", "GET none 404")
    for secret in ("a-secret", TOKEN, "w0a"):
        assert secret not in service.log


def test_the_service_survives_kill_reload_and_stop_under_load(folder, tokens, tmp_path):
    """Labels outlive kill -9; another model is swapped in and SIGTERM comes without one request that fails."""
    own = tmp_path / "topics"
    shutil.copytree(folder, own)
    with served(own, "--token-file", tokens) as first:
        added = first.client.post("/v1/labels", json={"uid": "kept", "text": "w0a w60i"}, headers=AUTHORISED)
        assert added.status_code == 201
        first.process.kill()
        first.process.wait()
    with served(own, "--token-file", tokens, "--drain-seconds", 4) as second:
        assert "kept" in second.predict(["w0a w60i"], k=2)[0]
        assert second.client.get("/ready").json() == {"status": "ready"}
        old = second.client.get("/v1/model").json()["model"]
        with Load(second.address, TEXTS, k=2) as load, ThreadPoolExecutor(1) as pool:
            load.wait_for(50)
            Model.load(own).save(own)  # the label is in the folder itself now: another manifest
            second.process.send_signal(signal.SIGHUP)
            new = wait_until(lambda: {second.client.get("/v1/model").json()["model"]} - {old}).pop()
            load.wait_for(50)
            # Damage is named, and the model that serves goes on.
            labels = own / "labels.jsonl"
            whole = labels.read_bytes()
            labels.write_bytes(whole[:-2])
            damaged = second.client.post("/v1/reload", headers=AUTHORISED)
            problem(damaged, 409, "labels.jsonl: the file changed", f"{new} continues to serve")
            labels.write_bytes(whole)
            load.wait_for(20)
            # A label for a folder that was replaced: the new model is read first.
            replaced = Model.load(own)
            replaced.metrics["note"] = "another"
            replaced.save(own)
            late = second.client.post("/v1/labels", json={"uid": "late", "text": "w2c w63l"}, headers=AUTHORISED)
            assert late.status_code == 201, late.text
            load.wait_for(20)
            assert load.models == {old, new, late.json()["model"]}
            assert len(load.models) == 3
            large = pool.submit(ask, second.address, {"texts": TEXTS * 16})
            load.wait_for(8)
            second.process.terminate()
            load.join()
            assert len(large.result()[1]["predictions"]) == len(TEXTS) * 16
        assert second.process.wait(PATIENCE) == 0
        second.wait_for_log("SIGTERM: answering for 4 s more", "The service has stopped.")
    assert set(load.statuses) == {200}
    assert load.faults == []
    assert {"kept", "late"} <= set(Model.load(own).labels.uids)


def test_several_workers_are_one_service(folder, tokens, tmp_path):
    own = tmp_path / "topics"
    shutil.copytree(folder, own)
    with served(own, "--token-file", tokens, "--workers", 2) as service:

        def asked(times, body, **more):
            """As often on connections of their own, which the system spreads over the workers."""
            return [ask(service.address, body, **more)[1] for _ in range(times)]

        for number in range(4):
            name = f"new{number}"
            body = {"uid": name, "text": f"w{number * 2}a w60i"}
            (added,) = asked(1, body, place="/v1/labels", headers=AUTHORISED)
            assert added["labels"][0]["id"] == 24 + number
            for found in asked(6, {"text": body["text"], "k": 24, "allowed": [name]}):
                assert [label["uid"] for label in found["predictions"][0]["labels"]] == [name]
        metrics = service.client.get("/metrics").text
        count = re.search(r'^unidex_requests_total{route="/v1/predict",status="200"} (\S+)$', metrics, re.MULTILINE)
        assert float(count[1]) == 24
        assert 'unidex_label_changes_total{change="add"} 4.0' in metrics
        # One worker teaches a label with words that it did not have; all of them know it then.
        other_words = {"text": "w70s w71t w72u", "k": 1, "allowed": ["new3", *(f"L{number}" for number in range(24))]}
        assert asked(1, other_words)[0]["predictions"][0]["labels"][0]["uid"] != "new3"
        texts = {"texts": ["w70s w71t", "w71t w72u", "w72u w70s"]}
        (taught,) = asked(1, texts, place="/v1/labels/27/teach", headers=AUTHORISED)
        assert taught["num_texts"] == taught["label"]["num_texts"] == 3

        def known():
            found = asked(12, other_words)
            return {(row["model"], row["predictions"][0]["labels"][0]["uid"]) for row in found}

        wait_until(lambda: known() == {(taught["model"], "new3")})
        # A new folder reaches all of them, whichever was asked.
        Model.load(own).save(own)
        (new,) = asked(1, None, place="/v1/reload", headers=AUTHORISED)
        served_by = {"place": "/v1/model", "method": "GET"}
        wait_until(lambda: {found["model"] for found in asked(12, None, **served_by)} == {new["model"]})
        assert service.stop() == 0
        service.wait_for_log("SIGTERM: stopping 2 workers.")


def test_a_port_in_use_is_an_error():
    from unidex.server.runner import run
    from unidex.server.settings import Settings

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="must be free"):
        run(Settings(folder="nowhere"), "127.0.0.1", taken.getsockname()[1], print)
    with pytest.raises(ConfigError, match="an address of this machine"):
        run(Settings(folder="nowhere"), "no such host", 0, print)
