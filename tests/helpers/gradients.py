"""The gradients of a step, by name."""

import numpy as np
import torch

from unidex.distributed import ALONE
from unidex.nn.row_table import merged
from unidex.training.step import Step
from unidex.training.training_set import TrainingSet


def gradients(network, touched):
    """Every gradient by name: dense parameters, and tables as whole matrices. They are cleared in the network."""
    found = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    names = {id(table): name for name, table in network.tables().items()}
    for used in merged(touched):
        whole = torch.zeros_like(used.table.weight)
        found[names[id(used.table)]] = whole.index_copy_(0, used.ids, used.rows.grad)
    network.zero_grad()
    return found


def training_set(data, encoder):
    """The train split of a data set as a step sees it."""
    texts, labels = (encoder.prepare(part.texts) for part in (data.train, data.labels))
    return TrainingSet(texts, labels, data.train.positives, data.train.filter_pairs)


def step_gradients(network, data, config, batch, *, seed=5, epoch=0, move_rows=None):
    """The loss of one step on one process and all its gradients."""
    take = Step(network, data, config, ALONE, move_rows)
    value, touched = take(batch, epoch, np.random.default_rng(seed))
    return value, gradients(network, touched)


def one_graph(config):
    """The recipe of the same step in one graph, on a picked pool."""
    pool, train = (getattr(config, name) for name in ("pool", "train"))
    changes = {"pool": pool.model_copy(update={"labels": "picked"}), "train": train.model_copy(update={"chunk": 0})}
    return config.model_copy(update=changes)
