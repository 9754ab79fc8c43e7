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


@pytest.fixture(scope="module")
def decoder(tiny, tmp_path_factory):
    """The folder of a tiny decoder whose tokenizer, like those of many, has no token for padding; and the tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("decoder")
    cut = transformers.AutoTokenizer.from_pretrained(tiny[1].removeprefix("encoder.path="))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=cut.backend_tokenizer, unk_token="[UNK]")
    assert tokenizer.pad_token is None
    tokenizer.save_pretrained(folder)
    shape = transformers.LlamaConfig(
        vocab_size=len(tokenizer) + len(SPECIAL),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=40,
    )
    torch.manual_seed(0)
    transformers.LlamaModel(shape).eval().save_pretrained(folder)
    return folder, tokenizer


def decoder_settings(folder, *options):
    settings = ["encoder.kind=transformer", f"encoder.path={folder}", "encoder.pooling=last", "encoder.max_length=16"]
    return [*settings, *SHORT, *options]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["encoder.low_rank=4", "train.lr_encoder=1e-2", "encoder.autocast=float16", "train.chunk=8"],
        ["encoder.low_rank=4", "train.lr_encoder=1e-2", "encoder.gradient_checkpointing=true"],
    ],
    ids=["all weights", "low rank in float16", "low rank with recomputed layers"],
)
def test_a_decoder_is_an_encoder_by_its_last_token(options, decoder, tmp_path):
    folder, tokenizer = decoder
    model = train(DATA, "depsl", settings=decoder_settings(folder, *options), out=tmp_path / "model")
    found = losses_of(tmp_path / "model")
    assert found[-1] < found[0]
    texts = ["w0a w1b", "w0a w1b w2c w3d"]
    exact = "encoder.autocast=float16" not in options
    together = model.network.encode(model.network.encoder.prepare(texts))
    with torch.no_grad():
        for row, text in enumerate(texts):
            tokens = tokenizer(text, return_tensors="pt")["input_ids"]
            last = model.network.encoder.model(input_ids=tokens).last_hidden_state[0, -1]
            torch.testing.assert_close(together[row], last, atol=1e-5 if exact else 2e-2, rtol=0)
    assert np.array_equal(Model.load(tmp_path / "model").vectors(texts).dual, model.vectors(texts).dual)


def test_a_decoder_without_padding_is_opened_and_exported_as_any_transformer(decoder, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder, tokenizer = decoder
    model = train(DATA, "depsl", settings=decoder_settings(folder, "train.epochs=1"), out=tmp_path / "model")
    model.export("sentence-transformers", tmp_path / "export")
    texts = ["w0a w1b", "w0a w1b w2c w3d", "w2c"]
    opened = library.SentenceTransformer(str(tmp_path / "model" / "encoder"), device="cpu")
    np.testing.assert_allclose(
        opened.encode(texts), model.network.encode(model.network.encoder.prepare(texts)), atol=1e-5
    )
    exported = library.SentenceTransformer(str(tmp_path / "export"), device="cpu")
    np.testing.assert_allclose(exported.encode(texts), model.vectors(texts).dual, atol=1e-5)
    # Texts are cut as before.
    assert exported.tokenizer(texts)["input_ids"] == tokenizer(texts)["input_ids"]


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
