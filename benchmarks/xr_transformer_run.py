"""PECOS XR-Transformer on texts and labels, for `transformer_losses.py`; runs in an environment of its own.

usage: python xr_transformer_run.py WORK.json OUT.npy SYSTEM BATCH RATE CPU_SECONDS STEPS SCALE SEED

The library's own training: the transformer is fine-tuned at each level of the label tree, STEPS steps each, or one pass
where STEPS is 0; then a linear model (XR-Linear) learns from its vectors beside TF-IDF of words and pairs of words. It
cannot be ended by a clock: CPU_SECONDS and SCALE say nothing here. Prints one JSON object; OUT.npy has the ids of the
best labels of each test text. libpecos 1.2 imports this part with transformers 4.48, tokenizers 0.21, huggingface-hub
0.36 and peft 0.14.
"""

import json
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

PLACES = 20


def main() -> None:
    """Train and predict."""
    work, out, _, batch, rate, _, steps, _, seed = sys.argv[1:10]
    torch.set_num_threads(1)
    random.seed(int(seed))
    np.random.seed(int(seed))  # noqa: NPY002 - the library draws from it
    torch.manual_seed(int(seed))
    data = json.loads(Path(work).read_text(encoding="utf-8"))
    texts, pairs = data["texts"], np.array(data["positives"])
    started = time.process_time()
    vectoriser = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32)
    features = sparse.csr_matrix(vectoriser.fit_transform(texts))
    ones = np.ones(len(pairs), dtype=np.float32)
    targets = sparse.csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=(len(texts), len(data["labels"])))
    settings = XTransformer.TrainParams.from_dict({}, recursive=True)
    of_levels = settings.matcher_params_chain
    of_levels.model_shortcut, of_levels.batch_size = data["encoder"], int(batch)
    of_levels.learning_rate, of_levels.use_gpu = float(rate), False
    of_levels.max_steps, of_levels.num_train_epochs = int(steps), 1
    of_levels.batch_gen_workers, of_levels.save_steps = 0, 1_000_000
    search = XTransformer.PredParams.from_dict({}, recursive=True)
    search.matcher_params_chain.truncate_length = data["max_length"]
    problem = MLProblemWithText(texts, targets, X_feat=features)
    model = XTransformer.train(problem, train_params=settings, pred_params=search, threads=1)
    used = time.process_time() - started
    found = model.predict(
        data["test"],
        X_feat=sparse.csr_matrix(vectoriser.transform(data["test"])),
        only_topk=PLACES,
        beam_size=PLACES,
        batch_size=int(batch),
        batch_gen_workers=0,
        use_gpu=False,
        threads=1,
    ).tocsr()
    ids = np.full((len(data["test"]), PLACES), -1, dtype=np.int64)
    for row in range(len(ids)):
        here = slice(found.indptr[row], found.indptr[row + 1])
        order = np.argsort(-found.data[here], kind="stable")
        ids[row, : len(order)] = found.indices[here][order]
    np.save(out, ids)
    print(json.dumps({"cpu_seconds": used, "cpu_seconds_of_steps": 0, "steps": int(steps), "encoded": 0}))


main()
