"""Learning rates over the steps of a run, and what decays."""

from itertools import pairwise

import pytest
import torch

from helpers.synthetic import QUICK, begun, topics
from unidex.config.recipes import load
from unidex.nn.row_table import Touched
from unidex.training.optimisers import Optimisers, lr_factor


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_learning_rates_warm_up_then_decay(schedule):
    factors = [lr_factor(step, 100, schedule=schedule, warmup=0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(factors[10:]))
    assert factors[-1] < 0.02 or schedule == "constant"


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
def test_weight_decay_of_classifiers_reaches_the_rows_of_a_step_but_no_bias_and_no_word(optimiser):
    settings = ["train.classifier_decay=0.5", "train.lr_classifier=0.1", "train.warmup=0", "train.schedule=constant"]
    config = load("unidec", [*QUICK, *settings, f"train.row_optimiser={optimiser}", "heads.classifier_bias=zero"])
    network, _ = begun(config, topics())
    optimisers = Optimisers(network, config, num_steps=10)
    tables = network.tables()
    before = {name: table.weight.clone() for name, table in tables.items()}
    ids = torch.tensor([0, 2])
    touched = []
    for table in tables.values():
        rows = table.gather(ids)
        (rows * 0).sum().backward()
        touched.append(Touched(table, ids, rows))
    optimisers.step(touched, 0)
    classifiers = before["classifiers"].clone()
    classifiers[ids, :-1] *= 1 - 0.1 * 0.5
    torch.testing.assert_close(tables["classifiers"].weight, classifiers)
    assert torch.equal(tables["features"].weight, before["features"])
