"""Bodies of requests, the OpenAPI document that describes them, and the problems they get."""

import json

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.synthetic import QUICK, topics
from unidex.server import request_bodies, schemas
from unidex.server.app import create_app
from unidex.server.problems import ProblemError
from unidex.server.settings import Limits, Settings
from unidex.verbs.train import train

LIMITS = Limits(text_length=20, texts=3, labels=4, k=10, body=10_000, body_seconds=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "topics"
    train(topics(num_train=120), "unidec", settings=[*QUICK, "train.epochs=1"], out=out)
    return out


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
        found = request_bodies.decode(kind, body)
        if kind is schemas.PredictRequest:
            request_bodies.texts_of(found, LIMITS)
        elif kind is schemas.NewLabels:
            request_bodies.read_new_labels(found, LIMITS)
        elif kind is schemas.RenameRequest:
            request_bodies.check_text(found.text, "text", LIMITS)
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
        request_bodies.decode(schemas.PredictRequest, body)
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


@given(st.text(max_size=300))
def test_problems_are_one_line_of_json(detail):
    found = msgspec.json.decode(ProblemError(422, detail, field="k").body())
    assert found["status"] == 422
    assert "\n" not in found["detail"]
