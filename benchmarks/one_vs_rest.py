"""One linear SVM per label on TF-IDF features, its C chosen on held-out train texts: a peer without any tree.

Run: python benchmarks/one_vs_rest.py DATADIR OUTDIR, with a Python that has PECOS, whose solver is LIBLINEAR's; unidex
is not needed. DATADIR has the features of prep_tfidf.py. Writes one-vs-rest.npy, the best ten labels of each test text,
and one-vs-rest.json, what it cost. The choice of C is in the train time.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse

PENALTIES = (0.3, 1.0, 3.0, 10.0)
_THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
# C is chosen with at most this many texts, of which a fifth is held out.
_MAX_TUNED = 5000
_K = 10


def main() -> None:
    data, out = map(Path, sys.argv[1:3])
    X, X_test, Y = (
        sparse.load_npz(data / f"{name}.npz").tocsr().astype(np.float32) for name in ("X_trn", "X_tst", "Y_trn")
    )
    for matrix in (X, X_test, Y):
        matrix.sort_indices()
    started = time.process_time()
    penalty = chosen_penalty(X, Y)
    model, labels = fit(X, Y, penalty)
    train_s = time.process_time() - started
    model.save(str(out / "m_one-vs-rest"))
    started = time.process_time()
    ids = predict(model, labels, X_test)
    predict_s = time.process_time() - started
    np.save(out / "one-vs-rest.npy", ids)
    record = {
        "train_cpu_s": train_s,
        "pred_cpu_s_per_1000": predict_s / len(ids) * 1e3,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "model_mb": sum(file.stat().st_size for file in (out / "m_one-vs-rest").rglob("*") if file.is_file()) / 1e6,
        "note": f"C = {penalty}",
    }
    (out / "one-vs-rest.json").write_text(json.dumps(record) + "\n")


def chosen_penalty(X: Any, Y: Any) -> float:
    """The C with the highest sum of P@1, P@3 and P@5 on held-out texts."""
    rows = np.random.default_rng(0).permutation(X.shape[0])[:_MAX_TUNED]
    held_out, rest = np.split(rows, [len(rows) // 5])
    if len(held_out) == 0:
        return 1.0
    found = {}
    for penalty in PENALTIES:
        ids = predict(*fit(X[rest], Y[rest], penalty), X[held_out])
        hits = np.asarray(Y[held_out][np.arange(len(ids))[:, None], np.maximum(ids, 0)].todense()) * (ids >= 0)
        found[penalty] = sum(hits[:, :k].mean() for k in (1, 3, 5))
        print(f"C = {penalty}: {found[penalty]:.4f}", file=sys.stderr, flush=True)
    return max(found, key=lambda penalty: found[penalty])


def fit(X: Any, Y: Any, penalty: float) -> tuple[XLinearModel, NDArray[np.int64]]:
    """A model of the labels that have texts, and their ids."""
    labels = np.flatnonzero(np.asarray(Y.sum(axis=0)).ravel())
    columns = Y.tocsc()[:, labels].tocsc().astype(np.float32)
    return XLinearModel.train(X, columns, C=None, Cp=penalty, Cn=penalty, threads=_THREADS), labels


def predict(model: XLinearModel, labels: NDArray[np.int64], X: Any) -> NDArray[np.int64]:
    """Label ids, best first, -1 where there is none."""
    scores = model.predict(X, only_topk=_K, threads=_THREADS).tocsr()
    ids = np.full((X.shape[0], _K), -1, dtype=np.int64)
    for row, (start, end) in enumerate(zip(scores.indptr[:-1], scores.indptr[1:], strict=True)):
        order = np.argsort(-scores.data[start:end], kind="stable")
        ids[row, : end - start] = labels[scores.indices[start:end][order]]
    return ids


if __name__ == "__main__":
    main()
