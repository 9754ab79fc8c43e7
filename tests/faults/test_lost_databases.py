"""A database that stops while a prediction runs: the error names it, and the same command finishes when it is back."""

import json

import pytest

from helpers.command import call
from helpers.databases import missing, postgres, postgres_folder
from helpers.served import AUTHORISED, TOKEN, served
from helpers.synthetic import topics
from unidex.errors import IndexUnreachableError
from unidex.index import remote
from unidex.index.pgvector import PgvectorIndex

pytestmark = pytest.mark.skipif(bool(missing("pgvector")), reason=f"not installed: {', '.join(missing('pgvector'))}")


@pytest.fixture
def data():
    """The folder of a server of this test's own."""
    with postgres_folder() as folder:
        yield folder


def test_a_prediction_continues_when_the_database_is_back(model_folder, data, tmp_path, monkeypatch):
    # Tests of other databases may have left the address of theirs.
    monkeypatch.delenv(PgvectorIndex.environment, raising=False)
    server = postgres(data)
    folder, out = tmp_path / "in-postgres", tmp_path / "labels"
    call("export", model_folder, "--to", "pgvector", "--url", server.get_uri(), "--out", folder)
    kept = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    parts = [tmp_path / f"{name}.jsonl" for name in "ab"]
    texts = list(topics().test.texts[:20])
    for part, lines in zip(parts, (texts[:10], texts[10:]), strict=True):
        part.write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
    command = ("predict", folder, *parts, "--out", out, "--engine", "local", "-k", 3)

    plain, searches = PgvectorIndex.search, []

    def stopping(index, *arguments, **options):
        if searches:
            server.cleanup()
        searches.append(index)
        return plain(index, *arguments, **options)

    monkeypatch.setattr(remote.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(PgvectorIndex, "search", stopping)
    with pytest.raises(IndexUnreachableError, match="must be reachable at"):
        call(*command)
    monkeypatch.setattr(PgvectorIndex, "search", plain)
    assert len([file for file in out.iterdir() if file.suffix == ".jsonl"]) == 1
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} == kept

    again = postgres(data)
    try:
        call(*command)
    finally:
        again.cleanup()
    call("predict", model_folder, *parts, "--out", tmp_path / "wanted", "--engine", "local", "-k", 3)
    for file in (tmp_path / "wanted").glob("*.jsonl"):
        found, wanted = ([json.loads(line) for line in one.read_text().splitlines()] for one in (out / file.name, file))
        assert [row["uid_1"] for row in found] == [row["uid_1"] for row in wanted]


def test_a_service_answers_503_until_the_database_is_back(model_folder, data, tmp_path, monkeypatch):
    monkeypatch.delenv(PgvectorIndex.environment, raising=False)
    server = postgres(data)
    folder, tokens = tmp_path / "in-postgres", tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    call("export", model_folder, "--to", "pgvector", "--url", server.get_uri(), "--out", folder)
    texts = list(topics().test.texts[:2])
    with served(folder, "--token-file", tokens) as service:
        wanted = service.predict(texts)
        server.cleanup()
        asked = (
            ("/v1/predict", {"texts": texts}),
            ("/v1/explain", {"text": texts[0]}),
            ("/v1/labels", {"labels": [{"text": "a new one"}]}),
        )
        for route, body in asked:
            answer = service.client.post(route, json=body, headers=AUTHORISED)
            assert answer.status_code == 503, answer.text
            assert answer.headers["retry-after"] == "5"
            assert "does not; try again soon" in answer.json()["detail"]
            assert str(data) not in answer.text
        service.wait_for_log("must be reachable at")
        again = postgres(data)
        try:
            assert service.predict(texts) == wanted
        finally:
            again.cleanup()
