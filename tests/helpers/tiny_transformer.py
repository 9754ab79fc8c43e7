"""A tiny transformer: its words, its folder, texts for it, and its encoder."""

import pytest
import torch

from unidex.config import Encoder as Settings
from unidex.encoders.transformer import TransformerEncoder

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "shoe", "hat", "##s", "a", "of", "the"]
TEXTS = [
    "red shoes",
    "",
    "a blue hat of the red shoe",
    "hat",
    "the the the the the the the the the the",
    "shoes of hat",
]


def write_tiny(folder):
    """Write a BERT of two layers with random weights to a folder, by transformers itself."""
    transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")
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


def loaded(folder, **settings):
    return TransformerEncoder.from_pretrained(str(folder), Settings(kind="transformer", path=str(folder), **settings))
