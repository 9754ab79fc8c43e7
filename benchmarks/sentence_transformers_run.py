"""sentence-transformers on pairs of text and label, for `transformer_losses.py`; runs in an environment of its own.

usage: python sentence_transformers_run.py WORK.json OUT.npy LOSS BATCH RATE CPU_SECONDS STEPS SCALE SEED

LOSS is mnrl (MultipleNegativesRankingLoss) or cached (CachedMultipleNegativesRankingLoss, mini-batches of 64). A plain
loop with the optimiser, warm-up and gradient clipping of the library's own. Steps end, and rates have decayed to 0,
after STEPS steps; where STEPS is 0, after the CPU seconds. SCALE is 1 over the temperature. Prints one JSON object;
OUT.npy has the ids of the best labels of each test text.
"""

import json
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, losses

WARMUP = 0.1
PLACES = 20


def main() -> None:
    """Train and predict."""
    work, out, name, batch, rate, seconds, steps, scale, seed = sys.argv[1:10]
    torch.set_num_threads(1)
    random.seed(int(seed))
    torch.manual_seed(int(seed))
    data = json.loads(Path(work).read_text(encoding="utf-8"))
    model = SentenceTransformer(data["encoder"], device="cpu")
    model.max_seq_length = data["max_length"]
    if name == "cached":
        loss = losses.CachedMultipleNegativesRankingLoss(model, scale=float(scale), mini_batch_size=64)
    else:
        loss = losses.MultipleNegativesRankingLoss(model, scale=float(scale))
    pairs, size = data["pairs"], int(batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=float(rate), weight_decay=0.01)
    model.train()
    order: list[int] = []
    step, num_encoded, done = 0, 0, 0.0
    started = time.process_time()
    while done < 1:
        if len(order) < size:
            order = random.sample(range(len(pairs)), len(pairs))
        chosen = [pairs[order.pop()] for _ in range(min(size, len(order)))]
        sides = [model.tokenize([pair[side] for pair in chosen]) for side in (0, 1)]
        num_encoded += 2 * len(chosen)
        value = loss(sides, None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step += 1
        done = step / int(steps) if int(steps) else (time.process_time() - started) / float(seconds)
        for group in optimiser.param_groups:
            group["lr"] = float(rate) * max(0.0, min(done / WARMUP, (1 - done) / (1 - WARMUP)))
        optimiser.step()
        optimiser.zero_grad()
    trained = time.process_time() - started
    labels = model.encode(data["labels"], normalize_embeddings=True, show_progress_bar=False)
    used = time.process_time() - started
    texts = model.encode(data["test"], normalize_embeddings=True, show_progress_bar=False)
    np.save(out, np.argsort(-(texts @ labels.T), axis=1, kind="stable")[:, :PLACES])
    print(json.dumps({"cpu_seconds": used, "cpu_seconds_of_steps": trained, "steps": step, "encoded": num_encoded}))


main()
