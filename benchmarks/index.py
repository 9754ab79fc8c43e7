"""Speed and recall of the indexes on synthetic clustered label vectors, or on your own.

    python benchmarks/index.py kinds          the kinds against each other: build seconds, queries a second, recall
    python benchmarks/index.py kinds --vectors FILE     the same on the arrays `labels` and `queries` of a .npz file
    python benchmarks/index.py cut            exact: share of the time outside the choice of the best, for three ways
    python benchmarks/index.py norms          vectors of unequal norm: hnsw, its reduction to L2, pq

Rates are wall-clock, the best of a few rounds: run it on an idle machine. The processor's own milliseconds stand beside
them; with ``--threads 1`` they hold on a busy machine too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from unidex import index as index_layer
from unidex.index import exact, tensor_search
from unidex.topk import TopK

Array = NDArray[np.float32]
NUM_TEXTS = 1024


def unit(vectors: Array) -> Array:
    """Rows of norm one."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def clustered(num_labels: int, dim: int, seed: int = 0) -> tuple[Array, Array]:
    """Label vectors [a; b] of two unit halves, and text vectors near some of them.

    Labels lie around subtopics (20 labels each), subtopics around topics. The second half is a rotation of the first
    with noise, as a label's classifier is close to its text's vector but is not the same.
    """
    rng = np.random.default_rng(seed)
    half = dim // 2

    def noise(number: int, size: float) -> Array:
        return size * rng.standard_normal((number, half), dtype=np.float32) / np.float32(np.sqrt(half))

    num_topics, num_subtopics = max(4, int(num_labels**0.5) // 4), max(8, num_labels // 20)
    topics = noise(num_topics, 1.0)
    subtopics = topics[rng.integers(num_topics, size=num_subtopics)] + noise(num_subtopics, 0.8)
    first = unit(subtopics[rng.integers(num_subtopics, size=num_labels)] + noise(num_labels, 0.7))
    rotation = np.linalg.qr(rng.standard_normal((half, half)))[0].astype(np.float32)
    second = unit(first @ rotation + noise(num_labels, 0.7))
    near = rng.integers(num_labels, size=NUM_TEXTS)
    texts = [unit(part[near] + noise(NUM_TEXTS, 0.8)) for part in (first, second)]
    return np.concatenate([first, second], axis=1), np.concatenate(texts, axis=1)


def timed(run: Callable[[], object], rounds: int = 3) -> tuple[float, float]:
    """Wall-clock and processor seconds, each of the fastest of a few rounds."""
    wall, processor = [], []
    for _ in range(rounds):
        start = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    return min(wall), min(processor)


def recall(found: TopK, wanted: TopK) -> float:
    """Share of the wanted labels that were found."""
    return float((found.ids[:, :, None] == wanted.ids[:, None, :]).any(axis=1).mean())


def kinds(problems: Iterable[tuple[Array, Array]], k: int, chosen: dict[str, dict[str, Any]]) -> None:
    for number, (vectors, texts) in enumerate(problems):
        num_labels, dim = vectors.shape
        if number == 0:
            print(
                f"| labels x {dim} | index | build s (CPU s) | queries/s | CPU ms a query "
                f"| one query ms (CPU) | recall@{k} |"
            )
            print("|---|---|---|---|---|---|---|")
        wanted = index_layer.build("exact", vectors).search(texts, k)
        for kind, settings in chosen.items():
            built: dict[str, index_layer.Index] = {}
            build = timed(partial(_keep, built, kind, vectors, settings), rounds=1)
            wall, processor = timed(partial(built[kind].search, texts, k))
            one = timed(partial(built[kind].search, texts[:1], k), rounds=20)
            share = recall(built[kind].search(texts, k), wanted)
            print(
                f"| {num_labels} | {kind} | {build[0]:.1f} ({build[1]:.1f}) | {len(texts) / wall:.0f} "
                f"| {1000 * processor / len(texts):.3f} | {1000 * one[0]:.2f} ({1000 * one[1]:.2f}) | {share:.4f} |",
                flush=True,
            )


def saved(file: Path) -> tuple[Array, Array]:
    """Label vectors and the first text vectors of a file."""
    arrays = np.load(file, allow_pickle=False)
    labels, queries = (np.ascontiguousarray(arrays[name], dtype=np.float32) for name in ("labels", "queries"))
    return labels, queries[:NUM_TEXTS]


def _keep(built: dict[str, index_layer.Index], kind: str, vectors: Array, settings: dict[str, Any]) -> None:
    built[kind] = index_layer.build(kind, vectors, **settings)


def cut(sizes: list[int], dim: int) -> None:
    def by_topk(self: tensor_search.RunningTopK, _: slice, scores_BN: torch.Tensor, __: torch.Tensor) -> None:
        scores_BN.topk(min(self.scores_BK.shape[1], scores_BN.shape[1]), dim=1)

    def by_argpartition(self: tensor_search.RunningTopK, _: slice, scores_BN: torch.Tensor, __: torch.Tensor) -> None:
        np.argpartition(scores_BN.numpy(), -min(self.scores_BK.shape[1], scores_BN.shape[1]), axis=1)

    def by_nothing(*_: object) -> None:
        pass

    # These only find a block's best: what merging blocks and keeping the law of ties would cost them is left out.
    others = {"torch.topk": by_topk, "np.argpartition": by_argpartition}
    groups = tensor_search.RunningTopK.offer
    tensor_search.WHOLE_UP_TO = 0  # one text goes the same way
    print(
        f"| labels x {dim} | k | chosen by | queries/s | CPU ms a query | of it matrix product | one query ms (CPU) |"
    )
    print("|---|---|---|---|---|---|---|")
    for num_labels in sizes:
        vectors, texts = clustered(num_labels, dim)
        for k in (5, 10, 100):
            product = 0.0
            for name, offer in {"": by_nothing, "groups": groups, **others}.items():
                tensor_search.RunningTopK.offer = offer  # type: ignore[method-assign]
                wall, processor = timed(partial(exact.search_exact, torch.from_numpy(texts), vectors, k))
                if not name:
                    product = processor
                    continue
                one = timed(partial(exact.search_exact, torch.from_numpy(texts[:1]), vectors, k), rounds=20)
                print(
                    f"| {num_labels} | {k} | {name} | {NUM_TEXTS / wall:.0f} | {1000 * processor / NUM_TEXTS:.3f} "
                    f"| {product / processor:.0%} | {1000 * one[0]:.2f} ({1000 * one[1]:.2f}) |",
                    flush=True,
                )
    tensor_search.RunningTopK.offer = groups  # type: ignore[method-assign]


def norms(num_labels: int, dim: int, k: int) -> None:
    print(f"| norms of {num_labels} x {dim}; recall@{k} of | hnsw | hnsw, reduced to L2 | pq | pq, 128 lists |")
    print("|---|---|---|---|---|")
    vectors, texts = clustered(num_labels, dim)
    rng = np.random.default_rng(1)
    cases = {f"log-normal, {spread}": vectors * np.exp(spread * rng.standard_normal((num_labels, 1), dtype=np.float32))
             for spread in (0.0, 0.1, 0.3, 0.6)}  # fmt: skip
    normal = rng.standard_normal((num_labels + NUM_TEXTS, dim), dtype=np.float32)
    for name, labels, queries in [
        *((name, labels, texts) for name, labels in cases.items()),
        ("normal numbers", normal[:num_labels], normal[num_labels:]),
        ("normal numbers, every score negative", -np.abs(normal[:num_labels]), np.abs(normal[num_labels:])),
    ]:
        wanted = index_layer.build("exact", labels).search(queries, k)
        plain = index_layer.build("hnsw", labels).search(queries, k)
        squares = np.square(labels).sum(axis=1, keepdims=True)
        longer = np.concatenate([labels, np.sqrt(np.maximum(squares.max() - squares, 0))], axis=1)
        reduced = faiss.IndexHNSWFlat(dim + 1, 32)
        reduced.hnsw.efConstruction, reduced.hnsw.efSearch = 200, 128
        reduced.add(longer)
        distances, ids = reduced.search(np.pad(queries, ((0, 0), (0, 1))), k)
        answers = [plain, TopK.rank(ids, -distances)]
        answers += [index_layer.build("pq", labels, lists=lists).search(queries, k) for lists in (1, 128)]
        print(f"| {name} | {' | '.join(f'{recall(answer, wanted):.3f}' for answer in answers)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kinds", "cut", "norms"])
    parser.add_argument("--labels", type=int, nargs="+", help="numbers of labels")
    parser.add_argument("--dim", type=int, help="numbers a vector")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=sorted(index_layer.KINDS), default=sorted(index_layer.KINDS))
    parser.add_argument("--vectors", type=Path, help="kinds: a .npz file with the arrays `labels` and `queries`")
    parser.add_argument("--m", type=int, help="hnsw: links a label")
    parser.add_argument("--ef-construction", type=int, help="hnsw: candidates looked at when a label is linked")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    faiss.omp_set_num_threads(given.threads)
    if given.what == "kinds":
        links = {"m": given.m, "ef_construction": given.ef_construction}
        settings = {"hnsw": {name: value for name, value in links.items() if value is not None}}
        sizes = given.labels or [24_000, 165_000, 1_000_000]
        problems = (clustered(size, given.dim or 128) for size in sizes)
        kinds(
            [saved(given.vectors)] if given.vectors else problems,
            given.k,
            {kind: settings.get(kind, {}) for kind in given.kinds},
        )
    elif given.what == "cut":
        cut(given.labels or [24_000, 165_000], given.dim or 512)
    else:
        norms((given.labels or [8_000])[0], given.dim or 64, given.k)


if __name__ == "__main__":
    main()
