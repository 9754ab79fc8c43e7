"""What each process of a test runs under torchrun: some steps of several recipes; the first writes the parameters.

Run: torchrun --nproc-per-node N distributed_steps.py FOLDER RECIPE ...
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from helpers.synthetic import topics
from helpers.tiny_transformer import topics_settings
from unidex import distributed
from unidex.config.recipes import load, recipe_names
from unidex.training.run import Run

# 23 labels: shards of 12 and 11, or of 8, 8 and 7.
NUM_LABELS = 23
COMMON = [
    # Rounding by 8 bits would make steps of differences in the last digits.
    "predict.precision=float32",
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
TREE = ["tree.levels=[3,7]", "tree.beam=[1,2]", "tree.search_beam=[2,3]", "tree.dropout=[0.0]", "pool.hard_negatives=0"]
SOFTMAX = ["loss.classifier=one-positive", "loss.temperature=0.1"]
SURROGATE = ["stages.surrogate.train.surrogate=5"]
RECIPES = {
    "dexml": [],
    "dexml-top5": ["train.chunk=5"],
    "dexml-mined": ["train.chunk=7"],
    "renee": [],
    "depsl": [],
    "unidec": ["loss.learn_temperature=true", "loss.log_q=0.5"],
    "auto": ["train.validation=0.2", "train.validate_every=2", "train.decay_epochs=4"],
    # Without what is tried before and fitted after the steps: that is as without chunks.
    "auto-chunked": [
        *("train.validation=0.2", "train.validate_every=2", "train.decay_epochs=4", "train.chunk=11"),
        *("augment.method=gandalf", "pool.try_hard_negatives=0", "predict.rank=sum", "predict.linear=false"),
    ],
    "unidec-spectral": ["encoder.spectral=true", "train.lr_heads=0.01"],
    "unidec-one-positive": ["loss.dual=one-positive", "loss.classifier=one-positive", "train.chunk=9"],
    "unidec-triplet": ["loss.dual=triplet", "loss.classifier=contrastive", "loss.temperature=1.0"],
    "unidec-with-bce": ["loss.classifier_bce=0.5"],
    "unidec-mixed-texts": ["augment.mixup=texts", "heads.shared_encoder=false"],
    "unidec-mixed-labels": ["augment.mixup=labels", "train.chunk=9"],
    "renee-mixed-labels": ["augment.mixup=labels"],
    "cascadexml": [*TREE, "loss.bce_reduction=sum"],
    "cascadexml-chunked": [
        *TREE,
        "train.chunk=9",
        "train.validation=0.2",
        "heads.classifier_bias=none",
        "train.epochs=6",
    ],
    "cascadexml-softmax": [*TREE, *SOFTMAX, "loss.classifier_bce=0.5", "augment.mixup=labels"],
    "cascadexml-frozen": [*TREE, "train.freeze_encoder=true"],
    # The vectors of texts are compared: weights that change no vector, such as a bias of keys, follow rounding alone.
    "unidec-transformer": ["train.chunk=9", "train.lr_encoder=1e-3", "heads.projection=false", "train.validation=0"],
    "unidec-low-rank-transformer": [
        *("encoder.low_rank=2", "train.lr_encoder=1e-2", "heads.projection=false", "train.validation=0"),
    ],
    "unidec-own": ["pool.candidates=own", "pool.start=0", "train.chunk=9", "loss.learn_temperature=true"],
    "unidec-own-mixed": [
        "pool.candidates=own",
        "loss.dual=triplet",
        "loss.classifier=one-positive",
        "loss.classifier_bce=0.5",
        "augment.mixup=texts",
    ],
    "decaf": [*SURROGATE, "encoder.layer_dropout=0.0"],
    "decaf-tree": [*SURROGATE, *TREE, "encoder.layer_dropout=0.0", "stages.surrogate.tree.levels=[3,7]"],
}

# One recipe per mechanism runs on two processes, the others on three, whose shards differ in size.
ON_TWO = ("dexml-top5", "unidec", "auto", "unidec-mixed-texts", "unidec-own", "cascadexml-chunked", "decaf")
ON_THREE = tuple(name for name in RECIPES if name not in ON_TWO)


def problem():
    """Filter pairs and soft targets included; the last label of every shard is a positive."""
    return topics(num_labels=NUM_LABELS, num_train=163, num_test=0, filters=True)


def settings_of(name):
    """Four epochs of six batches, random or clustered; candidates are mined twice."""
    transformer = topics_settings(2 * NUM_LABELS + 40) if name.endswith("transformer") else []
    return [*COMMON, "train.epochs=4", *transformer, *RECIPES[name]]


def recipe_of(name):
    """The longest shipped recipe that a name starts with."""
    return max((recipe for recipe in recipe_names() if name.startswith(recipe)), key=len)


def parameters(name, processes):
    """The parameters of a recipe after its steps, on the first process; None on the others."""
    config = load(recipe_of(name), settings_of(name))
    run = Run(problem(), config, seed=3, device=torch.device("cpu"), folder=None, processes=processes)
    model = run.model()
    if model is None:
        return None
    tables = {key: table.weight for key, table in model.network.tables().items()}
    assert model.metrics["training"]["steps"] >= 20
    if name.endswith("transformer"):
        return tables | {"vectors": torch.from_numpy(model.vectors(list(problem().train.texts)).dual)}
    return {**model.network.state_dict(), **tables}


if __name__ == "__main__":
    names = sys.argv[2:]
    # Before the processes meet: after that, transformers writes a folder on the first of them alone.
    for recipe in names:
        settings_of(recipe)
    with distributed.process_group(torch.device("cpu")) as everybody:
        for recipe in names:
            found = parameters(recipe, everybody)
            if found is not None:
                save_file({key: value.contiguous() for key, value in found.items()}, Path(sys.argv[1]) / recipe)
