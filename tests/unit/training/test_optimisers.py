"""Learning rates over the steps of a run."""

from itertools import pairwise

import pytest

from unidex.training.optimisers import lr_factor


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_learning_rates_warm_up_then_decay(schedule):
    factors = [lr_factor(step, 100, schedule=schedule, warmup=0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(factors[10:]))
    assert factors[-1] < 0.02 or schedule == "constant"
