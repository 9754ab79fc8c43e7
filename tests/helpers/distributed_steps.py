"""What each process of a test runs under torchrun: some steps of several recipes; the first writes the parameters.

Run: torchrun --nproc-per-node N distributed_steps.py FOLDER
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from helpers.synthetic import topics
from unidex import distributed
from unidex.config.recipes import load
from unidex.training.run import Run

# 23 labels: shards of 12 and 11, or of 8, 8 and 7.
NUM_LABELS = 23
COMMON = [
    "encoder.dim=16",
    "encoder.dropout=0.0",
    "features.min_df=1",
    "heads.dropout=0.0",
    "heads.classifier_dropout=0.0",
    "train.batch_size=31",
    "pool.start=1",
    "pool.refresh_every=2",
    "pool.hard_negatives=2",
    # One fifth of a plain Adagrad step: what is compared are equal steps, not how rounding grows in large ones.
    "train.lr_encoder=0.02",
    "train.lr_classifier=0.02",
]
RECIPES = {
    "dexml": [],
    "dexml-top5": ["train.chunk=5"],
    "dexml-mined": ["train.chunk=7"],
    "renee": [],
    "depsl": [],
    "unidec": ["loss.learn_temperature=true", "loss.log_q=0.5"],
    "auto": ["train.validation=0.2", "train.validate_every=2", "train.decay_epochs=4"],
    "auto-chunked": ["train.validation=0.2", "train.validate_every=2", "train.decay_epochs=4", "train.chunk=11"],
    "unidec-spectral": ["encoder.spectral=true", "train.lr_heads=0.01"],
    "unidec-one-positive": ["loss.dual=one-positive", "loss.classifier=one-positive", "train.chunk=9"],
}


def problem():
    """Filter pairs and soft targets included; the last label of every shard is a positive."""
    return topics(num_labels=NUM_LABELS, num_train=163, num_test=0, filters=True)


def settings_of(name):
    """Twenty steps or a few more: an epoch has six random or four clustered batches."""
    return [*COMMON, *RECIPES[name], "train.epochs=6"]


def recipe_of(name):
    return name.removesuffix("-one-positive").removesuffix("-chunked").removesuffix("-spectral")


def parameters(name, processes):
    """The parameters of a recipe after its steps, on the first process; None on the others."""
    config = load(recipe_of(name), settings_of(name))
    run = Run(problem(), config, seed=3, device=torch.device("cpu"), folder=None, processes=processes)
    model = run.model()
    if model is None:
        return None
    tables = {key: table.weight for key, table in model.network.tables().items()}
    assert model.metrics["training"]["steps"] >= 20
    return {**model.network.state_dict(), **tables}


if __name__ == "__main__":
    with distributed.process_group(torch.device("cpu")) as everybody:
        for recipe in RECIPES:
            found = parameters(recipe, everybody)
            if found is not None:
                save_file({key: value.contiguous() for key, value in found.items()}, Path(sys.argv[1]) / recipe)
