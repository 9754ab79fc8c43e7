"""A pretrained encoder that is not trained: unit vectors of texts by a transformer, or by static token vectors.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from unidex import progress
from unidex.features.frozen_encoder import Vectors
from unidex.features.tokens import token_counts, tokenise
from unidex.nn.token_vectors import MINILM, WORDLLAMA, TokenVectors, read_token_vectors

_BLOCK = 1024


class PretrainedEncoder:
    """Unit vectors of texts.

    ``source`` is "minilm", a folder of a transformer or a name on the Hugging Face hub; "wordllama" or a folder of
    static token vectors, of which a text has the mean. ``max_length`` is the number of tokens that are read.
    """

    def __init__(self, source: str, max_length: int) -> None:
        self._encode = _static(source, max_length) if _is_static(source) else _transformer(source, max_length)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, N x D; 0 for a text without a known token."""
        blocks = []
        with progress.task("pretrained vectors", len(texts), unit="texts") as advance:
            for start in range(0, max(1, len(texts)), _BLOCK):
                block = list(texts[start : start + _BLOCK])
                # No texts have vectors of D numbers too.
                found = self._encode(block or [""])[: len(block)]
                lengths = np.linalg.norm(found, axis=1, keepdims=True)
                blocks.append((found / np.where(lengths > 0, lengths, 1)).astype(np.float32))
                advance(len(block))
        return np.concatenate(blocks)


def _is_static(source: str) -> bool:
    folder = Path(source).expanduser()
    return source == WORDLLAMA or (source != MINILM and folder.is_dir() and not (folder / "config.json").is_file())


def _transformer(source: str, max_length: int) -> Callable[[Sequence[str]], Vectors]:
    # Static vectors do without torch.
    import torch

    from unidex.config import Encoder
    from unidex.encoders.transformer import TransformerEncoder

    settings = Encoder(kind="transformer", path=source, max_length=max_length)
    encoder = TransformerEncoder.from_pretrained(source, settings)

    @torch.no_grad()
    def encode(texts: Sequence[str]) -> Vectors:
        found: Vectors = encoder(encoder.prepare(texts)).numpy()
        return found

    return encode


def _static(source: str, max_length: int) -> Callable[[Sequence[str]], Vectors]:
    known: TokenVectors = read_token_vectors(source)
    tokenizer = known.tokenizer
    tokenizer.no_padding()
    # Words of a text without order cost little: a static encoder reads eight times as far as a transformer.
    tokenizer.enable_truncation(8 * max_length)
    vectors = known.vectors - known.vectors.mean(axis=0)

    def encode(texts: Sequence[str]) -> Vectors:
        rows = tokenise(texts, tokenizer, 8 * max_length)
        found: Vectors = token_counts(rows, len(vectors)) @ vectors
        return found

    return encode
