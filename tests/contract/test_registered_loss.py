"""A loss that another package registers trains in every way, and the built-in ones say what they read."""

import pytest
import torch

from helpers.synthetic import QUICK, topics
from unidex.config import Loss as Settings
from unidex.config import names
from unidex.config.recipes import load
from unidex.errors import ConfigError
from unidex.losses import HeadLoss, LossGrad, RegisteredLoss, Targets, register, registry
from unidex.verbs.train import train

BUILT_IN = registry.names()


def margin_softmax(scores_BP, targets):
    """The cross-entropy with positives lowered by a margin, left to autograd."""
    y_BP = torch.zeros_like(scores_BP)
    y_BP[targets.rows, targets.columns] = targets.weights.to(y_BP.dtype)
    with torch.enable_grad():
        leaf_BP = scores_BP.detach().requires_grad_()
        log_p_BP = torch.log_softmax(leaf_BP - 0.5 * y_BP, dim=1)
        value = -(y_BP / y_BP.sum(1, keepdim=True).clamp_min(1e-9) * log_p_BP).sum() / len(y_BP)
    return LossGrad(value.detach(), *torch.autograd.grad(value, leaf_BP))


@pytest.fixture
def registered():
    calls = []

    def dense(settings):
        calls.append(settings)
        return margin_softmax

    register(RegisteredLoss("margin-softmax", dense=dense))
    yield calls
    registry.unregister("margin-softmax")


def test_a_recipe_cannot_name_a_loss_before_it_is_registered():
    known = "'bce', 'contrastive', 'decoupled-softmax', 'one-positive', 'soft-top-k', 'supcon' or 'triplet'"
    with pytest.raises(ConfigError, match=f"loss.dual: Input should be {known}, but is 'margin-softmax'"):
        load("unidec", ["loss.dual=margin-softmax"])


@pytest.mark.parametrize("way", ["train.chunk=0", "train.chunk=16", "pool.labels=all"])
def test_a_loss_from_outside_trains_in_every_way(registered, way):
    names_of_losses = ["loss.dual=margin-softmax", "loss.classifier=margin-softmax"]
    model = train(topics(), "unidec", settings=[*QUICK, *names_of_losses, "train.epochs=10", way])
    assert registered
    # One label in 24 by chance.
    assert model.metrics["test"]["P@1"] > 80


def test_a_name_is_registered_once(registered):
    with pytest.raises(ValueError, match="'margin-softmax' is registered already"):
        register(RegisteredLoss("margin-softmax", dense=lambda settings: margin_softmax))


def test_settings_are_keys_of_the_section():
    with pytest.raises(ValueError, match=r"keys of the section \[loss\], but 'gamma' is not"):
        register(RegisteredLoss("focal", dense=lambda settings: margin_softmax, settings=("gamma",)))
    assert "focal" not in registry.names()


def test_recipes_know_the_built_in_names_without_importing_them():
    assert sorted(BUILT_IN) == list(names.LOSSES)


class Recorder:
    """Settings that remember which of them were read."""

    def __init__(self, settings):
        self.settings, self.read = settings, set()

    def __getattr__(self, key):
        self.read.add(key)
        return getattr(self.settings, key)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_loss_reads_the_settings_that_it_lists(name):
    loss, recorder = registry.get(name), Recorder(Settings())
    loss.dense(recorder)
    assert loss.blocked is not None
    loss.blocked(recorder)
    loss.sample(Targets.of([0], [0], shape=(1, 2)), recorder, torch.Generator())
    read_by_the_step = ({"text_to_label"} if loss.takes_text_to_label else set()) | (
        {"log_q"} if loss.takes_log_q else set()
    )
    assert recorder.read | read_by_the_step == set(loss.settings)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("bce_weight", [0.0, 0.5])
def test_the_dense_and_the_blocked_form_are_equal(name, bce_weight):
    generator = torch.Generator().manual_seed(0)
    texts, labels = torch.randn(6, 4, generator=generator).double(), torch.randn(30, 4, generator=generator).double()
    scale, log_q = torch.tensor(0.7).double(), torch.rand(30, generator=generator).log()
    pairs = Targets.of(
        [0, 0, 1, 2, 4, 4, 5], [0, 29, 7, 7, 12, 13, 1], ignored_rows=[3], ignored_columns=[4], shape=(6, 30)
    )
    loss = HeadLoss.of(name, Settings(text_to_label=0.4, sampled_positives=1), bce_weight=bce_weight)
    targets = loss.sample(pairs, seed=3)
    value, gradient = loss.dense(log_q)(scale * texts @ labels.T, targets)
    found = loss.blocked(texts, labels, scale, targets, log_q_L=log_q, block_size=7)
    torch.testing.assert_close(found.value, value, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.texts_BD, scale * gradient @ labels, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.labels_LD, scale * gradient.T @ texts, rtol=0, atol=1e-10)
