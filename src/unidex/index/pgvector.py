"""Label vectors in PostgreSQL with the extension pgvector.

A graph (HNSW) over half-precision vectors finds candidates, and the vectors themselves score them. A filtered search
continues in the graph until enough visible labels are found (iterative scan).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ConfigError, MissingExtraError, UnidexError
from unidex.index.remote import RemoteIndex, wrong_address

GRAPH_FROM = 1 << 12  # labels; fewer are scanned
MAX_GRAPH_DIM = 4000  # of half-precision vectors in a graph of pgvector
MAX_EXAMINED = 1000  # the maximum of hnsw.ef_search
TEXTS_AT_ONCE = 64


class PgvectorIndex(RemoteIndex):
    """Label vectors in a table of PostgreSQL."""

    kind = "pgvector"
    environment = "UNIDEX_PGVECTOR_URL"

    def _connect(self) -> Any:
        try:
            psycopg, adapter = import_module("psycopg"), import_module("pgvector.psycopg")
        except ImportError:
            raise MissingExtraError("an index of kind pgvector", "pgvector") from None
        try:
            client = psycopg.connect(self.url, autocommit=True, connect_timeout=10)
        except psycopg.ProgrammingError as error:
            raise wrong_address(self.url, f"postgresql://me@host/name ({' '.join(str(error).split())})") from None
        client.execute("SET client_min_messages = warning")
        try:
            client.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.errors.InsufficientPrivilege as error:
            raise UnidexError(f"PostgreSQL must have the extension vector, but may not make it ({error})") from None
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
            raise UnidexError(
                "PostgreSQL must have the extension vector, but it is not installed; see github.com/pgvector/pgvector"
            ) from None
        adapter.register_vector(client)
        return client

    def _lost_connection(self) -> tuple[type[Exception], ...]:
        try:
            psycopg = import_module("psycopg")
        except ImportError:
            return ()
        return (psycopg.OperationalError, psycopg.InterfaceError)

    def _create(self) -> None:
        found = self._client.execute("SELECT to_regclass(%s)", (self.table,)).fetchone()
        if found[0] is not None:
            raise ConfigError(f"the table {self.table!r} must be new, but exists; name another with --table")
        self._client.execute(f"CREATE TABLE {self.table} (id bigint PRIMARY KEY, v vector({self._dim}) NOT NULL)")

    def _drop(self) -> None:
        self._client.execute(f"DROP TABLE IF EXISTS {self.table}")

    def _finish(self) -> None:
        if self._num_ids >= GRAPH_FROM and self._dim <= MAX_GRAPH_DIM:
            self._client.execute(
                f"CREATE INDEX IF NOT EXISTS {self.table}_graph ON {self.table} "
                f"USING hnsw ((v::halfvec({self._dim})) halfvec_ip_ops)"
            )
        self._client.execute(f"ANALYZE {self.table}")

    def _upsert(self, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        statement = f"INSERT INTO {self.table} (id, v) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
        with self._client.transaction(), self._client.cursor() as cursor:
            cursor.executemany(statement, list(zip(ids.tolist(), vectors, strict=True)))

    def _fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = self._client.execute(
            f"SELECT t.v FROM unnest(%s::bigint[]) WITH ORDINALITY AS w(id, place) JOIN {self.table} t USING (id) "
            "ORDER BY w.place",
            (ids.tolist(),),
        ).fetchall()
        if len(rows) != len(ids):
            raise UnidexError(
                f"the table {self.table!r} must have a row per label, but some are missing; export it again"
            )
        return np.stack([_numbers(row[0]) for row in rows]) if rows else np.empty((0, self._dim), dtype=np.float32)

    def _query(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        forbidden: NDArray[np.int64] | None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        examined = min(MAX_EXAMINED, max(100, 2 * wanted))
        found: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        with self._client.transaction():
            self._client.execute(f"SET LOCAL hnsw.ef_search = {examined}")
            self._client.execute("SET LOCAL hnsw.iterative_scan = 'relaxed_order'")
            for start in range(0, len(queries), TEXTS_AT_ONCE):
                block = queries[start : start + TEXTS_AT_ONCE]
                rows = self._client.execute(*self._statement(block, wanted, forbidden)).fetchall()
                texts = np.array([row[0] for row in rows], dtype=np.int64)
                ids = np.array([row[1] for row in rows], dtype=np.int64)
                scores = np.array([row[2] for row in rows], dtype=np.float32)
                found += [(ids[texts == place], scores[texts == place]) for place in range(len(block))]
        return found

    def _statement(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        forbidden: NDArray[np.int64] | None,
    ) -> tuple[str, tuple[Any, ...]]:
        texts = [f"[{','.join(map(repr, row))}]" for row in queries.tolist()]
        asked = "unnest(%s::text[]) WITH ORDINALITY AS q(v, place)"
        has_graph = self._num_ids >= GRAPH_FROM and self._dim <= MAX_GRAPH_DIM
        kind = f"halfvec({self._dim})" if has_graph else "vector"
        condition, values = "id < %s", [self._num_ids]
        filtered: list[Any] = []
        if forbidden is not None:
            condition += " AND id <> ALL(%s)"
            filtered.append(forbidden.tolist())
        order = f"t.v::{kind} <#> q.v::{kind}" if has_graph else "t.v <#> q.v::vector, t.id"
        inner = f"SELECT id, v FROM {self.table} t WHERE {condition} ORDER BY {order} LIMIT %s"
        statement = f"SELECT q.place - 1, r.id, -(r.v <#> q.v::vector) FROM {asked} CROSS JOIN LATERAL ({inner}) r"
        return statement, (texts, *values, *filtered, wanted)


def _numbers(vector: Any) -> NDArray[np.float32]:
    return np.asarray(vector.to_numpy() if hasattr(vector, "to_numpy") else vector, dtype=np.float32)
