"""PECOS XR-Linear from text files to a model on disk, in one process: what ``unidex train`` does.

Run: PYTHON benchmarks/pecos_training.py TRAIN OUT, with a Python that has libpecos; unidex is not needed.
TRAIN has trn.json.gz and lbl.json.gz. Features and settings are those of the peers' scripts with characters: TF-IDF of
words, word bigrams and character 3-5-grams, and the library's own defaults. The model is saved with its vectorisers.
"""

import gzip
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

THREADS = 2


def rows(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def main() -> None:
    data, out = map(Path, sys.argv[1:3])
    out.mkdir(parents=True)
    train, num_labels = rows(data / "trn.json.gz"), len(rows(data / "lbl.json.gz"))
    texts = [f"{row.get('title') or ''} {row.get('content') or ''}" for row in train]
    ids = [row["target_ind"] for row in train]
    options: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, **options)
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=3, **options)
    parts = [vectoriser.fit_transform(texts) for vectoriser in (words, characters)]
    features = normalize(sparse.hstack(parts, format="csr"))
    features.sort_indices()
    ends = np.cumsum([0, *map(len, ids)])
    columns = np.array([label for own in ids for label in own], dtype=np.int32)
    targets = sparse.csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape=(len(ids), num_labels))
    targets.sort_indices()
    labels = LabelEmbeddingFactory.create(targets, features, method="pifa")
    clusters = Indexer.gen(labels, indexer_type="hierarchicalkmeans", nr_splits=16, max_leaf_size=100, threads=THREADS)
    XLinearModel.train(features, targets, C=clusters, threads=THREADS).save(str(out / "model"))
    (out / "vectorisers.pickle").write_bytes(pickle.dumps((words, characters)))


if __name__ == "__main__":
    main()
