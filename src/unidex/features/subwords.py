"""Subword tokenizers: trained on the data, or read from a file."""

from __future__ import annotations

import collections
import unicodedata
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from unidex import progress
from unidex.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ALPHABET = 1000
_BATCH = 1000
_NUM_TOKENS = 30_000
_UNKNOWN = "<unk>"


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json or of the folder that holds one, without padding and cutting."""
    from tokenizers import Tokenizer

    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"features: tokenizer must be a tokenizer.json or a folder with one, but {file} is no file")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # The library raises plain Exception.
        raise ConfigError(f"{file}: a tokenizer must be here, but the file cannot be read ({error})") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def train_tokenizer(texts: Iterable[str], *, num_texts: int, num_tokens: int = _NUM_TOKENS) -> Tokenizer:
    """Byte-pair encoding of words, learned from texts; the same texts give the same tokenizer.

    The first token of a word starts with U+2581. The alphabet is the 1000 most frequent characters, chosen here and
    handed over, because the library breaks ties between characters by chance.

    >>> tokenizer = train_tokenizer(["low lower lowest"] * 3, num_texts=3, num_tokens=14)
    >>> [token.replace("\u2581", "_") for token in tokenizer.encode("Lowest").tokens]
    ['_lowe', 'st']
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    counts = _character_counts(texts, num_texts)
    alphabet = sorted(counts, key=lambda character: (-counts[character], character))[:_ALPHABET]
    tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens,
        min_frequency=2,
        special_tokens=[_UNKNOWN],
        initial_alphabet=["\u2581", *alphabet],
        limit_alphabet=len(alphabet) + 1,
        show_progress=False,
    )
    with progress.task("training subwords", num_texts, unit="texts") as advance:

        def batches() -> Iterable[list[str]]:
            source = iter(texts)
            while batch := list(islice(source, _BATCH)):
                yield batch
                advance(len(batch))

        tokenizer.train_from_iterator(batches(), trainer=trainer)
    return tokenizer


def _character_counts(texts: Iterable[str], num_texts: int) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    with progress.task("counting characters", num_texts, unit="texts") as advance:
        source = iter(texts)
        while batch := list(islice(source, _BATCH)):
            counts.update(unicodedata.normalize("NFKC", " ".join(batch)).lower())
            advance(len(batch))
    return collections.Counter({character: n for character, n in counts.items() if not character.isspace()})
