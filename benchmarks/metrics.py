"""How long the metrics take, and whether they agree with napkinXC where it is installed.

Run: python benchmarks/metrics.py [--rows 1000000] [--places 5] [--labels 24000]
"""

from __future__ import annotations

import argparse
import platform
import resource
import time
from types import ModuleType

import numpy as np
from scipy import sparse

from unidex.data.dataset import Propensity
from unidex.metrics.evaluation import Evaluation
from unidex.topk import TopK

PROPENSITY = Propensity(0.55, 1.5)


def random_problem(
    num_rows: int, num_places: int, num_labels: int, seed: int
) -> tuple[TopK, sparse.csr_array, np.ndarray]:
    """Lists that hit now and then, truth of 0 to 8 labels a text, frequencies with a long tail."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, num_rows)
    rows = np.repeat(np.arange(num_rows), counts)
    columns = rng.integers(0, num_labels, len(rows))
    truth = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(num_rows, num_labels))
    truth.sum_duplicates()
    # The steps of a list are too short to come round to a label again.
    steps = rng.integers(1, num_labels // (num_places + 1), num_rows)
    ids = (rng.integers(0, num_labels, num_rows)[:, None] + steps[:, None] * np.arange(num_places)) % num_labels
    scores = rng.normal(size=ids.shape).astype(np.float32)
    # A true label at a random place of about half the lists that have one.
    chosen = np.flatnonzero((np.diff(truth.indptr) > 0) & (rng.random(num_rows) < 0.5))
    labels = truth.indices[truth.indptr[chosen]]
    fresh = ~(ids[chosen] == labels[:, None]).any(axis=1)
    ids[chosen[fresh], rng.integers(0, num_places, int(fresh.sum()))] = labels[fresh]
    frequencies = np.minimum(rng.zipf(1.4, num_labels) - 1, 100_000)
    return TopK.rank(ids, scores), truth, frequencies


def measure(num_rows: int, num_places: int, num_labels: int) -> None:
    topk, truth, frequencies = random_problem(num_rows, num_places, num_labels, seed=0)
    pairs = sparse.random_array(
        truth.shape, density=min(1.0, 0.1 / num_labels), format="csr", dtype=bool, rng=np.random.default_rng(1)
    )
    for what, filter_pairs in (("without filter pairs", None), ("with filter pairs", pairs)):
        evaluation = Evaluation(frequencies, num_rows, PROPENSITY)
        start = time.perf_counter()
        evaluation.add(topk, truth, filter_pairs)
        found = evaluation.results()
        seconds = time.perf_counter() - start
        print(
            f"{num_rows:,} texts x top-{num_places} of {num_labels:,} labels, {len(found)} metrics, {what}: "
            f"{seconds:.2f} s"
        )
    start = time.perf_counter()
    evaluation = Evaluation(frequencies, num_rows, PROPENSITY)
    for first in range(0, num_rows, 1024):
        evaluation.add(topk.rows(first, first + 1024), truth[first : first + 1024])
    print(f"the same in batches of 1024: {time.perf_counter() - start:.2f} s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB, data included")


def compare() -> None:
    try:
        from napkinxc import metrics as napkin  # type: ignore[import-not-found]
    except ImportError:
        print("napkinxc is not installed: nothing to compare with (pip install napkinxc)")
        return
    num_rows, num_places, num_labels = 3000, 10, 500
    rng = np.random.default_rng(2)
    train = sparse.csr_matrix((rng.random((num_rows, num_labels)) < rng.random(num_labels) ** 6).astype(float))
    topk, truth, _ = random_problem(num_rows, num_places, num_labels, seed=3)
    # Some lists are shorter than others.
    kept = np.arange(num_places) < rng.integers(1, num_places + 1, num_rows)[:, None]
    topk = TopK.rank(np.where(kept, topk.ids, -1), topk.scores)
    frequencies = np.bincount(train.indices, minlength=num_labels)
    places = range(1, num_places + 1)
    evaluation = Evaluation(frequencies, num_rows, PROPENSITY, list(places))
    evaluation.add(topk, truth)
    found = evaluation.results()

    inverse = napkin.Jain_et_al_inverse_propensity(train, PROPENSITY.a, PROPENSITY.b)
    true_lists = [row.tolist() for row in np.split(truth.indices, truth.indptr[1:-1])]
    pred_lists = [[label for label in row if label >= 0] for row in topk.ids.tolist()]
    given = (true_lists, pred_lists)
    theirs = {
        "P": napkin.precision_at_k(*given, k=num_places),
        "R": napkin.recall_at_k(*given, k=num_places),
        "nDCG": napkin.ndcg_at_k(*given, k=num_places),
        "PSP": napkin.psprecision_at_k(*given, inverse, k=num_places),
        "PSR": napkin.psrecall_at_k(*given, inverse, k=num_places),
        "PSnDCG": napkin.psndcg_at_k(*given, inverse, k=num_places),
        "hits": napkin.abandonment_at_k(*given, k=num_places),
        "coverage": napkin.coverage_at_k(*given, k=num_places),
    }
    for metric, values in theirs.items():
        ours = np.array([found[f"{metric}@{k}"] for k in places]) / 100
        difference = float(np.abs(ours - values).max())
        verdict = "agrees" if difference < 1e-9 else "DIFFERS"
        print(f"napkinXC {metric:9s} {verdict}: at most {difference:.1e} over k = 1..{num_places}")
    differences(napkin)


def differences(napkin: ModuleType) -> None:
    """What docs/reference/metrics.md says about napkinXC, by running it."""
    zero = sparse.csr_matrix((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    print("napkinXC P@1 of a stored zero in the truth:", napkin.precision_at_k(zero, [[1]], k=1)[0])
    print("napkinXC P@2 of one positive listed twice:", napkin.precision_at_k([[0]], [[0, 0]], k=2)[1])
    weak = sparse.csr_matrix(np.array([[0.5, 0.0], [0.5, 1.0]]))
    print("napkinXC frequencies of labels with relevance (0.5, 0.5) and (1):", napkin.count_labels(weak).tolist())
    scored = [[(0, 0.1), (1, 0.9)]]
    print(
        "napkinXC P@1 of a lower score listed first, where it is right:", napkin.precision_at_k([[0]], scored, k=1)[0]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--places", type=int, default=5)
    parser.add_argument("--labels", type=int, default=24_000)
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    measure(options.rows, options.places, options.labels)
    compare()
