"""The words of a tiny transformer (the fixture ``tiny`` writes one), texts for it, and its encoder."""

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


def loaded(folder, **settings):
    return TransformerEncoder.from_pretrained(str(folder), Settings(kind="transformer", path=str(folder), **settings))
