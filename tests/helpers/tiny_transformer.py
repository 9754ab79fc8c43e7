"""A tiny transformer with random weights (the fixture ``tiny`` writes one), texts for it, and its encoder."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch

from unidex.config import Encoder as Settings
from unidex.encoders.transformer import TransformerEncoder

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, "red", "blue", "shoe", "hat", "##s", "a", "of", "the"]
TEXTS = [
    "red shoes",
    "",
    "a blue hat of the red shoe",
    "hat",
    "the the the the the the the the the the",
    "shoes of hat",
]


def loaded(folder, **settings):
    return TransformerEncoder.from_pretrained(str(folder), Settings(kind="transformer", path=str(folder), **settings))


def write_tiny(folder, vocabulary=VOCABULARY, **shape):
    """Write a BERT of two layers with random weights."""
    transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    # Weights far from 0, so that a wrong mask or a wrong order shows.
    shown = {"max_position_embeddings": 40, "initializer_range": 0.5}
    torch.manual_seed(0)
    transformers.BertModel(
        transformers.BertConfig(vocab_size=len(vocabulary), **(sizes | shown | shape))
    ).save_pretrained(folder)
    return folder


@cache
def tiny_of_topics(num_words):
    """The folder of a tiny transformer that knows the words of `helpers.synthetic.topics`; the same in any process."""
    words = [f"w{number}{chr(97 + number % 26)}" for number in range(num_words)]
    return write_tiny(Path(tempfile.mkdtemp()), [*SPECIAL, *words], initializer_range=0.1)


def topics_settings(num_words):
    """The settings that train it."""
    path = tiny_of_topics(num_words)
    return ["encoder.kind=transformer", f"encoder.path={path}", "encoder.max_length=16", "encoder.own_dropout=false"]
