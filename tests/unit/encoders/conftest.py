"""A tiny transformer with random weights."""

import pytest
import torch

from helpers.tiny_transformer import VOCABULARY
from unidex.encoders import transformer as transformer_module


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of a BERT of two layers with random weights."""
    transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    shape = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        # Weights far from 0, so that a wrong mask or a wrong order shows.
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    transformers.BertModel(shape).save_pretrained(folder)
    return folder


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of very few tokens, so that small inputs are cut too."""
    monkeypatch.setattr(transformer_module, "_TOKENS_ON_CPU", (4, 16))
