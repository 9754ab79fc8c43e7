"""Indexes in real databases keep the promises of every index (tests/contract/test_index.py)."""

import json

import numpy as np
import pytest

from helpers.databases import missing, remote_kinds
from unidex import index as index_layer
from unidex.errors import ConfigError, IndexUnreachableError
from unidex.index import pgvector, remote

kinds = pytest.mark.parametrize("kind", remote_kinds())


pytestmark = pytest.mark.usefixtures("databases")


def vectors_of(number, dim=8, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((number, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def best(queries, vectors, k, removed=()):
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    scores[:, list(removed)] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@kinds
def test_the_promises_of_every_index(kind, tmp_path):
    vectors, queries = vectors_of(300), vectors_of(20, seed=1)
    index = index_layer.build(kind, vectors[:250])
    assert index.add(vectors[250:]).tolist() == list(range(250, 300))
    index.remove([3, 299])
    assert (index.num_labels, index.num_ids, index.dim) == (298, 300, 8)
    wanted, scores = best(queries, vectors, 7, removed=[3, 299])
    index.save(tmp_path / "index")
    for each in (index, index_layer.load(tmp_path / "index")):
        found = each.search(queries, 7)
        assert found.ids.tolist() == wanted.tolist()
        assert found.scores == pytest.approx(scores, rel=1e-5)
        assert each.vectors(np.array([299, 0, 299])) == pytest.approx(vectors[[299, 0, 299]])
    assert json.loads((tmp_path / "index" / "manifest.json").read_text())["settings"]["table"] == index.table
    # Filters, few and many.
    few = best(queries, vectors[[5, 7, 9]], 3)[0]
    assert index.search(queries, 3, allowed=[5, 7, 9]).ids.tolist() == np.array([5, 7, 9])[few].tolist()
    assert index.search(queries, 5, allowed=[5, 7]).ids[:, 2:].tolist() == [[-1] * 3] * 20
    assert not np.isin(index.search(queries, 5, forbidden=wanted[:, 0]).ids, wanted[:, 0]).any()
    # Another vector, under the same id.
    index.replace([5, 6], -vectors[[5, 6]])
    assert index.search(-vectors[[5, 6]], 1).ids[:, 0].tolist() == [5, 6]
    # The same row again, as another process that reads the same journal writes it.
    index._upsert(np.array([6]), -vectors[[6]])
    assert index.search(-vectors[[6]], 2).ids[0, 0] == 6


@kinds
def test_empty_and_wrong_input(kind):
    index = index_layer.build(kind, np.empty((0, 3), dtype=np.float32))
    assert index.search(np.ones((1, 3), dtype=np.float32), 2).ids.tolist() == [[-1, -1]]
    assert index.add(np.eye(3, dtype=np.float32)).tolist() == [0, 1, 2]
    assert index.search(np.array([[1, 2, 3]], dtype=np.float32), 4).ids.tolist() == [[2, 1, 0, -1]]
    assert index.search(np.empty((0, 3), dtype=np.float32), 2).ids.shape == (0, 2)
    with pytest.raises(ValueError, match="label vectors must be finite numbers, but row 1 is not"):
        index.add(np.array([[0, 0, 0], [np.nan, 0, 0]], dtype=np.float32))
    with pytest.raises(ConfigError, match="must be new, but exists"):
        index_layer.build(kind, np.eye(3, dtype=np.float32), table=index.table)
    with pytest.raises(ConfigError, match="must be named in lower case"):
        index_layer.build(kind, np.eye(3, dtype=np.float32), table="labels; DROP TABLE x")


@kinds
def test_a_process_that_knows_fewer_labels_finds_only_those(kind, tmp_path):
    vectors = vectors_of(40)
    index = index_layer.build(kind, vectors[:30])
    index.save(tmp_path / "index")
    index.add(vectors[30:])
    assert index_layer.load(tmp_path / "index").search(vectors[35:], 3).ids.max() < 30


@pytest.mark.skipif(bool(missing("pgvector")), reason=f"not installed: {', '.join(missing('pgvector'))}")
def test_the_graph_of_pgvector_finds_what_exact_finds(monkeypatch):
    monkeypatch.setattr(pgvector, "GRAPH_FROM", 1000)
    vectors, queries = vectors_of(1500, 16), vectors_of(30, 16, seed=2)
    index = index_layer.build("pgvector", vectors)
    wanted = best(queries, vectors, 10)[0]
    found = index.search(queries, 10)
    shared = [len(set(a) & set(b)) / 10 for a, b in zip(found.ids.tolist(), wanted.tolist(), strict=True)]
    assert np.mean(shared) >= 0.95
    hidden = np.unique(wanted[:, :5])
    filtered = index.search(queries, 10, forbidden=hidden)
    assert not np.isin(filtered.ids, hidden).any()
    assert (filtered.ids >= 0).all()
    plan = index._client.execute(
        "EXPLAIN " + index._statement(queries[:1], 60, None)[0], index._statement(queries[:1], 60, None)[1]
    ).fetchall()
    assert f"{index.table}_graph" in str(plan)


@pytest.mark.skipif(bool(missing("pgvector")), reason=f"not installed: {', '.join(missing('pgvector'))}")
def test_a_lost_connection_is_made_again_and_a_lost_database_is_named(tmp_path, monkeypatch, caplog):
    pauses = []
    monkeypatch.setattr(remote.time, "sleep", pauses.append)
    vectors = vectors_of(20)
    index = index_layer.build("pgvector", vectors)
    # The server ends the session, as at a restart.
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(index.url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (index._client.info.backend_pid,))
    assert index.search(vectors[:3], 1).ids[:, 0].tolist() == [0, 1, 2]
    assert "trying again" in caplog.text
    pauses.clear()
    index.url, index._client = f"postgresql://me@/postgres?host={tmp_path}", None
    with pytest.raises(IndexUnreachableError, match=r"must be reachable at .* after 4 attempts .*UNIDEX_PGVECTOR_URL"):
        index.search(vectors[:3], 1)
    assert pauses == [0.25, 0.5, 1.0]


def test_a_password_is_never_written(monkeypatch):
    index = pgvector.PgvectorIndex("postgresql://me:secret@db/labels", "unidex_a", 0, 3)
    assert "secret" not in json.dumps(index._about())
    monkeypatch.delenv("UNIDEX_PGVECTOR_URL", raising=False)
    with pytest.raises(ConfigError, match="give it with --url or in UNIDEX_PGVECTOR_URL"):
        index_layer.build("pgvector", np.eye(3, dtype=np.float32))


@pytest.mark.parametrize(("kind", "wanted"), [("pgvector", "postgresql://me@host"), ("milvus", "http://host")])
def test_an_address_that_no_client_can_read_is_refused_at_once(kind, wanted, monkeypatch):
    if missing(kind):
        pytest.skip(f"not installed: {', '.join(missing(kind))}")
    monkeypatch.setattr(remote.time, "sleep", lambda seconds: pytest.fail("it was tried again"))
    with pytest.raises(ConfigError, match=f"must be like {wanted}.*but is 'nonsense'"):
        index_layer.build(kind, np.eye(3, dtype=np.float32), url="nonsense")
