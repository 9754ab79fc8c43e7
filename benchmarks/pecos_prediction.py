"""CPU time of predicting texts with a model of `pecos_training.py`, from texts to ten labels each.

Run: PYTHON benchmarks/pecos_prediction.py OUT TEXTS.json.gz [-k 10], with a Python that has libpecos; unidex is not
needed. After one call to warm up; prints one JSON object. Loading and reading are not in it.
"""

import argparse
import json
import pickle
import time
from pathlib import Path

from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse
from sklearn.preprocessing import normalize

from pecos_training import THREADS, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("-k", type=int, default=10)
    chosen = parser.parse_args()
    model = XLinearModel.load(str(chosen.model / "model"), is_predict_only=True)
    vectorisers = pickle.loads((chosen.model / "vectorisers.pickle").read_bytes())
    texts = [f"{row.get('title') or ''} {row.get('content') or ''}" for row in rows(chosen.texts)]

    def predict(some: list[str]) -> None:
        parts = [vectoriser.transform(some) for vectoriser in vectorisers]
        features = normalize(sparse.hstack(parts, format="csr"))
        features.sort_indices()
        model.predict(features, only_topk=chosen.k, beam_size=10, threads=THREADS)

    predict(texts[:64])
    started = time.process_time()
    predict(texts)
    print(json.dumps({"cpu_s": time.process_time() - started, "num_texts": len(texts)}))


if __name__ == "__main__":
    main()
