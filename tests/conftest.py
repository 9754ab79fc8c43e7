"""What all tests share: a cache of their own, and how hypothesis runs."""

import gc
import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from unidex import progress

# Some virtual machines announce the matrix unit AMX and end a process that uses it, as oneDNN does in bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
pytest.register_assert_rewrite("helpers")
# Behind everything else: the benchmarks have names, such as metrics, that nothing else may find there.
sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

# A busy machine is slow; that is no failure.
settings.register_profile("unidex", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unidex")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """The built-in data set is cached in a folder of the test run, never in the user's; workers share it."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="module", autouse=True)
def _collected_once():
    """What is there before a file stays, as imports do: a training, which collects garbage, need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def databases(tmp_path_factory):
    """Real databases for indexes, one of each kind for all tests of a process."""
    from helpers.databases import addresses

    with addresses(tmp_path_factory.mktemp("databases")):
        yield


@pytest.fixture(autouse=True)
def _own_command_line(monkeypatch):
    """What the command line sets for its process (log lines, progress, --debug) ends with the test that called it."""
    monkeypatch.setenv("UNIDEX_DEBUG", "")
    logger = logging.getLogger("unidex")
    handlers = list(logger.handlers)
    # A fixture of a whole module may have called the command line with --quiet before.
    logger.setLevel(logging.NOTSET)
    yield
    logger.setLevel(logging.NOTSET)
    logger.handlers[:] = handlers
    progress.listen(None)
