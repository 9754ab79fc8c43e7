"""A tiny transformer or decoder trains with each option of precision, memory and pooling that a GPU would use."""

import json
import logging

import numpy as np
import pytest
import torch

from helpers.synthetic import topics
from helpers.tiny_transformer import SPECIAL, topics_settings
from unidex.model.model import Model
from unidex.verbs.train import train

pytest.importorskip("transformers", reason="the transformers extra is not installed")

DATA = topics(num_labels=8, num_train=64, num_test=16)
SHORT = [
    "heads.projection=false",
    "heads.dropout=0.0",
    "train.validation=0",
    "train.epochs=3",
    "train.batch_size=16",
    "train.lr_encoder=2e-3",
    "pool.start=5",
]


@pytest.fixture(scope="module")
def tiny():
    """The settings of a tiny transformer; none is written where its tests do not run."""
    return topics_settings(2 * 8 + 40)


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (folder / "train.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def plain_losses(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "plain"
    train(DATA, "depsl", settings=[*tiny, *SHORT], out=folder)
    return losses_of(folder)


@pytest.mark.parametrize(
    "options",
    [
        ["encoder.autocast=bfloat16"],
        ["encoder.autocast=float16"],
        ["encoder.autocast=float16", "train.chunk=8", "encoder.gradient_checkpointing=true"],
        ["encoder.compile=eager"],
    ],
    ids=["bfloat16", "float16", "float16 in chunks", "compiled"],
)
def test_options_of_precision_and_memory_train_as_plain_float32_does(options, tiny, plain_losses, tmp_path):
    model = train(DATA, "depsl", settings=[*tiny, *SHORT, *options], out=tmp_path / "other")
    found = losses_of(tmp_path / "other")
    assert found[-1] < found[0]
    # Half precision rounds; nothing else differs.
    assert found == pytest.approx(plain_losses, rel=0.1)
    texts = list(DATA.test.texts)
    assert np.array_equal(Model.load(tmp_path / "other").vectors(texts).dual, model.vectors(texts).dual)


def test_a_decoder_is_an_encoder_by_its_last_token(tiny, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny[1].removeprefix("encoder.path="))
    tokenizer.save_pretrained(tmp_path / "decoder")
    shape = transformers.LlamaConfig(
        vocab_size=len(tokenizer) + len(SPECIAL),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=40,
    )
    torch.manual_seed(0)
    decoder = transformers.LlamaModel(shape).eval()
    decoder.save_pretrained(tmp_path / "decoder")
    settings = ["encoder.kind=transformer", f"encoder.path={tmp_path / 'decoder'}", "encoder.pooling=last"]
    model = train(DATA, "depsl", settings=[*settings, "encoder.max_length=16", *SHORT], out=tmp_path / "model")
    found = losses_of(tmp_path / "model")
    assert found[-1] < found[0]
    texts = ["w0a w1b", "w0a w1b w2c w3d"]
    together = model.network.encode(model.network.encoder.prepare(texts))
    with torch.no_grad():
        for row, text in enumerate(texts):
            tokens = tokenizer(text, return_tensors="pt")["input_ids"]
            last = model.network.encoder.model(input_ids=tokens).last_hidden_state[0, -1]
            torch.testing.assert_close(together[row], last, atol=1e-5, rtol=0)
    assert np.array_equal(Model.load(tmp_path / "model").vectors(texts).dual, model.vectors(texts).dual)


def test_a_run_that_learns_nothing_says_so(tiny, caplog):
    ruined = [*tiny, *SHORT, "train.validation=0.2", "train.validate_every=1", "train.lr_encoder=0.5"]
    with caplog.at_level(logging.INFO):
        train(DATA, "depsl", settings=ruined)
    assert "Before training: held-out texts" in caplog.text
    assert "The run has learned nothing" in caplog.text
    assert "train.lr_encoder 0.5" in caplog.text
    caplog.clear()
    train(DATA, "depsl", settings=[*ruined, "train.lr_encoder=2e-3"])
    assert "learned nothing" not in caplog.text
