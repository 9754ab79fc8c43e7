"""Indexes whose vectors are in a database: what they share.

An index folder holds the address of the database, the name of the table and the removed ids. Secrets stay outside: a
password is taken from the environment, never written.

Rows have the ids of labels. A change is an upsert, so that several processes that apply the same journal of label
changes write the same rows; a process that has not applied it yet looks only at the ids that it knows.

Shapes: B texts, L labels, D dimensions, C candidates, K places.
"""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.errors import ConfigError, IndexUnreachableError, quoted
from unidex.index.base import Index
from unidex.index.checks import Vectors, check_vectors
from unidex.index.exact import search_exact
from unidex.index.faiss_library import as_array, reading
from unidex.topk import PADDING, TopK

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

ROWS_AT_ONCE = 1 << 12
CANDIDATES, CANDIDATES_PER_PLACE = 64, 6
# So few visible labels are fetched and scored here.
FEW = 1 << 10
ATTEMPTS = 4
FIRST_PAUSE = 0.25  # seconds before the second attempt; each further pause is twice as long


class RemoteIndex(Index):
    """Label vectors in a database.

    Attributes:
        url: the address, with secrets; ``environment`` names the variable that has it where a folder has none.
        table: the table or collection.
    """

    environment: ClassVar[str]

    def __init__(self, url: str, table: str, num_ids: int, dim: int) -> None:
        super().__init__()
        self.url, self.table = url, table
        self._num_ids, self._dim = num_ids, dim
        self._client: Any = None

    @classmethod
    def build(cls, vectors_LD: Vectors, *, url: str = "", table: str = "") -> Self:  # type: ignore[override]
        """Fill a new table with these vectors, in the database of ``url``, else of the environment."""
        check_vectors(vectors_LD, "label vectors")
        table = table or f"unidex_{uuid.uuid4().hex[:12]}"
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", table):
            raise ConfigError(
                f"a table must be named in lower case, digits and _, at most 63 of them, but is {quoted(table)}"
            )
        index = cls(cls._url(url), table, 0, int(vectors_LD.shape[1]))
        index._attempt(index._create)
        with progress.task(f"filling {table}", len(vectors_LD), unit="labels") as advance:
            for start in range(0, len(vectors_LD), ROWS_AT_ONCE):
                block = vectors_LD[start : start + ROWS_AT_ONCE]
                index._append(block)
                advance(len(block))
        index.finish()
        return index

    def finish(self) -> None:
        """Make the table searchable after it was filled."""
        self._attempt(self._finish)

    def drop(self) -> None:
        """Remove the table."""
        self._attempt(self._drop)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        with reading(folder):
            settings = manifest["settings"]
            url, table = str(settings["url"]), str(settings["table"])
        return cls(os.environ.get(cls.environment) or url, table, manifest["num_ids"], manifest["dim"])

    def _about(self) -> dict[str, Any]:
        return {"settings": {"url": without_secrets(self.url), "table": self.table}}

    def _write(self, folder: Path) -> None:
        """The vectors stay in the database."""

    @property
    def num_ids(self) -> int:
        """Ids that this process knows; the table may have more."""
        return self._num_ids

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return self._dim

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of labels, one per row; each is fetched once."""
        distinct, places = np.unique(ids, return_inverse=True)
        found = np.empty((len(distinct), self._dim), dtype=np.float32)
        for start in range(0, len(distinct), ROWS_AT_ONCE):
            block = distinct[start : start + ROWS_AT_ONCE]
            found[start : start + len(block)] = self._attempt(self._fetch, block)
        return found[places]

    def _search(self, queries_BD: Vectors, k: int, hidden: NDArray[np.bool_] | None, num_visible: int) -> TopK:
        queries = as_array(queries_BD)
        if num_visible == 0 or len(queries) == 0:
            shape = (len(queries), k)
            return TopK(np.full(shape, PADDING, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32))
        if hidden is not None and num_visible <= FEW:
            return self._exactly(queries, np.flatnonzero(~hidden), k)
        forbidden = None if hidden is None else np.flatnonzero(hidden)
        wanted = min(num_visible, max(CANDIDATES, CANDIDATES_PER_PLACE * k))
        found = self._attempt(self._query, queries, wanted, forbidden)
        ids = np.full((len(queries), max(wanted, k)), PADDING, dtype=np.int64)
        scores = np.full(ids.shape, -np.inf, dtype=np.float32)
        for row, (own_ids, own_scores) in enumerate(found):
            ids[row, : len(own_ids)], scores[row, : len(own_ids)] = own_ids, own_scores
        best = TopK.rank(ids, scores, k)
        # A filter may leave too few of what the database has looked at.
        short = np.flatnonzero(best.ids[:, min(k, num_visible) - 1] < 0)
        if short.size:
            visible = np.arange(self._num_ids) if hidden is None else np.flatnonzero(~hidden)
            exact = self._exactly(queries[short], visible, k)
            best.ids[short], best.scores[short] = exact.ids, exact.scores
        return best

    def _exactly(self, queries: NDArray[np.float32], visible: NDArray[np.int64], k: int) -> TopK:
        """The best of some labels, whose vectors are fetched and scored here."""
        parts = []
        for start in range(0, len(visible), ROWS_AT_ONCE):
            own = visible[start : start + ROWS_AT_ONCE]
            found = search_exact(queries, self._attempt(self._fetch, own), k)
            parts.append((np.where(found.ids < 0, PADDING, own[found.ids]), found.scores))
        ids, scores = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
        return TopK.rank(ids, scores, k)

    def _append(self, vectors: Vectors) -> None:
        ids = np.arange(self._num_ids, self._num_ids + len(vectors))
        self._attempt(self._upsert, ids, as_array(vectors))
        self._num_ids += len(vectors)

    def _move(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        self._attempt(self._upsert, ids, as_array(vectors))

    def _attempt(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do some work; after a lost connection, connect again and repeat it, a few times."""
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._client is None:
                    self._client = self._connect()
                return work(*arguments)
            except self._lost_connection() as error:
                self._client = None
                reason = " ".join(str(error).split())[:160]
                if attempt == ATTEMPTS:
                    raise IndexUnreachableError(
                        f"the index {self.table!r} must be reachable at {without_secrets(self.url)}, but is not after "
                        f"{ATTEMPTS} attempts ({reason}); start the database, or set {self.environment} to its address"
                    ) from None
                logger.warning("The database of the index does not answer (%s); trying again in %g s.", reason, pause)
                time.sleep(pause)
                pause *= 2
        raise AssertionError

    @classmethod
    def _url(cls, url: str) -> str:
        found = url or os.environ.get(cls.environment, "")
        if not found:
            raise ConfigError(
                f"index {cls.kind!r} needs the address of its database; give it with --url or in {cls.environment}"
            )
        return found

    @abstractmethod
    def _connect(self) -> Any:
        """A client of the database."""

    @abstractmethod
    def _lost_connection(self) -> tuple[type[Exception], ...]:
        """The errors of a database that does not answer."""

    @abstractmethod
    def _create(self) -> None:
        """Make the table; refuse one that is there."""

    @abstractmethod
    def _drop(self) -> None:
        """Remove the table."""

    @abstractmethod
    def _finish(self) -> None:
        """Make the table searchable after it was filled."""

    @abstractmethod
    def _upsert(self, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Write rows, over those that are there."""

    @abstractmethod
    def _fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of distinct ids, in their order."""

    @abstractmethod
    def _query(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        forbidden: NDArray[np.int64] | None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The best ids of each text with their inner products."""


def wrong_address(url: str, wanted: str) -> ConfigError:
    """The error of an address that a database's client cannot read.

    >>> print(wrong_address("nonsense", "postgresql://me@host/name"))
    the address of a database must be like postgresql://me@host/name, but is 'nonsense'; give another with --url
    """
    found = quoted(without_secrets(url))
    return ConfigError(f"the address of a database must be like {wanted}, but is {found}; give another with --url")


def without_secrets(url: str) -> str:
    """An address without a password.

    >>> without_secrets("postgresql://me:secret@db.example:5432/labels?host=/run/pg")
    'postgresql://me@db.example:5432/labels?host=/run/pg'
    >>> without_secrets("labels.db")
    'labels.db'
    """
    parts = urlsplit(url)
    if not parts.netloc or "@" not in parts.netloc:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))
