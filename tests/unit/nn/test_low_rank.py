"""Low-rank training: what learns, what stays, and that the folded encoder is the trained one."""

import numpy as np
import pytest
import torch
from torch import nn

from helpers.tiny_transformer import TEXTS, VOCABULARY, loaded, write_tiny
from unidex.config.recipes import load as load_config
from unidex.errors import ConfigError
from unidex.nn.low_rank import LowRankLinear, add_low_rank, merge_low_rank


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("tiny")
    write_tiny(found)
    return found


def trained(encoder, steps=3):
    """The encoder after a few steps of whatever it lets learn."""
    optimiser = torch.optim.SGD([one for one in encoder.parameters() if one.requires_grad], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        encoder(encoder.prepare(TEXTS)).square().sum().backward()
        optimiser.step()
    return encoder


def test_the_gradient_is_that_of_the_formula():
    torch.manual_seed(0)
    layer = LowRankLinear(nn.Linear(5, 3).double(), rank=2).double()
    nn.init.normal_(layer.up_OR)

    def score(down, up, x):
        layer.down_RI.data, layer.up_OR.data = down, up
        return torch.func.functional_call(layer, {"down_RI": down, "up_OR": up}, (x,))

    inputs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((2, 5), (3, 2), (4, 5))]
    assert torch.autograd.gradcheck(score, inputs)


def test_training_starts_from_the_pretrained_encoder_and_leaves_its_weights(folder):
    plain, low = loaded(folder), loaded(folder, low_rank=2)
    with torch.no_grad():
        torch.testing.assert_close(low(low.prepare(TEXTS)), plain(plain.prepare(TEXTS)), rtol=0, atol=0)
    learns = {name for name, one in low.named_parameters() if one.requires_grad}
    assert learns
    assert all(name.endswith(("down_RI", "up_OR")) for name in learns)
    before = {name: one.clone() for name, one in low.named_parameters()}
    trained(low)
    changed = {name for name, one in low.named_parameters() if not torch.equal(one, before[name])}
    assert changed == learns


def test_a_folded_encoder_has_the_same_vectors_and_the_names_of_a_plain_one(folder, tmp_path):
    low = trained(loaded(folder, low_rank=2))
    with torch.no_grad():
        wanted = low(low.prepare(TEXTS))
        low.fold()
        torch.testing.assert_close(low(low.prepare(TEXTS)), wanted, rtol=1e-4, atol=1e-4)
    plain = loaded(folder)
    assert [name for name, _ in low.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert all(one.requires_grad for one in low.parameters())
    low.save(tmp_path / "saved")
    again = loaded(tmp_path / "saved")
    with torch.no_grad():
        torch.testing.assert_close(again(again.prepare(TEXTS)), low(low.prepare(TEXTS)), rtol=0, atol=0)
        assert not torch.allclose(wanted, plain(plain.prepare(TEXTS)), atol=1e-2)


def test_a_model_without_linear_layers_has_none_to_change():
    model = nn.Sequential(nn.Embedding(3, 2))
    assert add_low_rank(model, 4) == 0
    merge_low_rank(model)


def test_an_encoder_without_linear_layers_is_refused(tmp_path):
    """GPT-2 has layers of its own kind, so that nothing would learn."""
    transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")
    write_tiny(tmp_path)
    shape = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 40, "vocab_size": len(VOCABULARY)}
    transformers.GPT2Model(transformers.GPT2Config(**shape)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"encoder\.low_rank needs a transformer with linear layers, but gpt2 has"):
        loaded(tmp_path, low_rank=2, max_length=16)


def test_a_recipe_trains_with_it_and_saves_a_plain_model(folder, tmp_path):
    from helpers.synthetic import topics
    from unidex.model.model import Model
    from unidex.verbs.train import train

    settings = [
        "encoder.kind=transformer",
        f"encoder.path={folder}",
        "encoder.low_rank=2",
        "train.epochs=1",
        "train.batch_size=16",
    ]
    assert load_config("depsl", settings).encoder.low_rank == 2
    data = topics()
    model = train(data, "depsl", settings=settings, out=tmp_path / "model")
    texts = list(data.train.texts[:5])
    again = Model.load(tmp_path / "model")
    np.testing.assert_allclose(again.encode(texts), model.encode(texts), atol=1e-5)
    names = [name for name, _ in again.network.encoder.named_parameters()]
    assert not any("_RI" in name or "_OR" in name for name in names)
