"""Label vectors in a collection of Milvus, or in a file of Milvus Lite; Milvus chooses the kind of its index."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ConfigError, MissingExtraError, UnidexError
from unidex.index.remote import RemoteIndex, wrong_address

TEXTS_AT_ONCE = 64
_VECTOR = "v"


class MilvusIndex(RemoteIndex):
    """Label vectors in a collection of Milvus."""

    kind = "milvus"
    environment = "UNIDEX_MILVUS_URL"

    def _connect(self) -> Any:
        try:
            pymilvus = import_module("pymilvus")
        except ImportError:
            raise MissingExtraError("an index of kind milvus", "milvus") from None
        try:
            return pymilvus.MilvusClient(uri=self.url)
        except import_module("pymilvus.exceptions").ConnectionConfigException:
            raise wrong_address(self.url, "http://host:19530, or end with .db as a file of Milvus Lite") from None

    def _lost_connection(self) -> tuple[type[Exception], ...]:
        try:
            errors = import_module("pymilvus.exceptions")
        except ImportError:
            return ()
        return (errors.MilvusException, ConnectionError)

    def _create(self) -> None:
        if self._client.has_collection(self.table):
            raise ConfigError(f"the collection {self.table!r} must be new, but exists; name another with --table")
        types = import_module("pymilvus").DataType
        schema = self._client.create_schema(auto_id=False)
        schema.add_field("id", types.INT64, is_primary=True)
        schema.add_field(_VECTOR, types.FLOAT_VECTOR, dim=self._dim)
        index = self._client.prepare_index_params()
        index.add_index(_VECTOR, index_type="AUTOINDEX", metric_type="IP")
        self._client.create_collection(self.table, schema=schema, index_params=index, consistency_level="Strong")

    def _drop(self) -> None:
        self._client.drop_collection(self.table)

    def _finish(self) -> None:
        self._client.flush(self.table)

    def _upsert(self, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        rows = [{"id": int(label), _VECTOR: vector} for label, vector in zip(ids, vectors, strict=True)]
        if rows:
            self._client.upsert(self.table, rows)

    def _fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        self._client.load_collection(self.table)
        rows = self._client.get(self.table, ids=ids.tolist(), output_fields=["id", _VECTOR])
        found = {row["id"]: row[_VECTOR] for row in rows}
        if len(found) != len(ids):
            raise UnidexError(
                f"the collection {self.table!r} must have a row per label, but some are missing; export again"
            )
        vectors = [np.asarray(found[label], dtype=np.float32) for label in ids.tolist()]
        return np.stack(vectors) if vectors else np.empty((0, self._dim), dtype=np.float32)

    def _query(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        forbidden: NDArray[np.int64] | None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        self._client.load_collection(self.table)
        condition = f"id < {self._num_ids}"
        if forbidden is not None and len(forbidden):
            condition += f" and id not in {forbidden.tolist()}"
        found: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        for start in range(0, len(queries), TEXTS_AT_ONCE):
            block = queries[start : start + TEXTS_AT_ONCE]
            results = self._client.search(
                self.table,
                data=list(block),
                filter=condition,
                limit=wanted,
                search_params={"metric_type": "IP", "params": {"ef": max(128, wanted)}},
                consistency_level="Strong",
            )
            for hits in results:
                ids = np.array([hit["id"] for hit in hits], dtype=np.int64)
                found.append((ids, np.array([hit["distance"] for hit in hits], dtype=np.float32)))
        return found
