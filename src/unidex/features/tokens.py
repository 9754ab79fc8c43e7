"""Token rows: the token ids of many texts, made once, in memory or mapped from a file.

Kept token rows are one file named by a fingerprint of everything they depend on: all tokens, then the number of tokens
of each text, then a checksum, as little-endian 32-bit numbers. It is written beside its place and renamed into it, so
that it is there whole or not at all, and its checksum is compared before it is used.

Shapes: N texts, T tokens of the longest.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import progress
from unidex.data.arrays import row_numbers
from unidex.errors import DataError
from unidex.features.hash_keys import places
from unidex.storage.atomic import unfinished_file
from unidex.storage.spilled_array import SpilledArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

FORMAT = 1  # Changes whenever the same texts and tokenizer would give another file.
_BATCH = 4096
_DTYPE = np.dtype("<i4")
_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class TokenRows:
    """The token ids of texts: ranges of one flat array, so that selections copy no tokens.

    Attributes:
        tokens: token ids of all texts, and perhaps of others.
        starts: where each text starts in it.
        lengths: tokens of each text.
        max_length: no text has more tokens.

    >>> rows = TokenRows.of([[101, 7, 102], [101, 102]], max_length=8)
    >>> rows.shape, rows[[1, 0]].as_lists()
    ((2, 8), [[101, 102], [101, 7, 102]])
    """

    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    max_length: int

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]], max_length: int) -> TokenRows:
        """Token rows of plain lists."""
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        tokens = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(lengths.sum()))
        return cls._end_to_end(tokens, lengths, max_length)

    @classmethod
    def _end_to_end(cls, tokens: NDArray[np.int32], lengths: NDArray[np.int64], max_length: int) -> TokenRows:
        return cls(tokens, np.cumsum(lengths) - lengths, lengths, max_length)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of texts, and the maximum number of tokens per text."""
        return len(self.lengths), self.max_length

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> TokenRows:
        """The rows of a slice, of row numbers or of a mask; they share the memory of the tokens."""
        at = rows if isinstance(rows, slice) else row_numbers(rows)
        return TokenRows(self.tokens, self.starts[at], self.lengths[at], self.max_length)

    @classmethod
    def stack(cls, parts: Sequence[TokenRows]) -> TokenRows:
        """Rows one after the other. Tokens are copied only where the parts do not share them.

        >>> both = TokenRows.stack([TokenRows.of([[1, 2]], max_length=4), TokenRows.of([[3], [4]], max_length=4)[1:]])
        >>> both.as_lists(), both.tokens.tolist()
        ([[1, 2], [4]], [1, 2, 4])
        """
        if not parts:
            raise DataError("token rows to stack must be at least one, but there are none")
        lengths = np.concatenate([part.lengths for part in parts])
        max_length = max(part.max_length for part in parts)
        if all(part.tokens is parts[0].tokens for part in parts):
            return cls(parts[0].tokens, np.concatenate([part.starts for part in parts]), lengths, max_length)
        return cls._end_to_end(np.concatenate([part.flat() for part in parts]), lengths, max_length)

    def flat(self) -> NDArray[np.int32]:
        """The tokens of these rows alone, end to end."""
        return np.asarray(self.tokens[places(self.starts, self.lengths)])

    def as_lists(self) -> list[list[int]]:
        """The token ids of each text."""
        ends = np.cumsum(self.lengths)[:-1]
        return [row.tolist() for row in np.split(self.flat(), ends)] if len(self) else []

    def padded(self, pad: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """N x T token ids, filled up with ``pad`` behind each text, and which of them are the texts'.

        >>> ids, mask = TokenRows.of([[5, 6], [7]], max_length=4).padded(0)
        >>> ids.tolist(), mask.tolist()
        ([[5, 6], [7, 0]], [[True, True], [True, False]])
        """
        width = int(self.lengths.max(initial=0))
        mask = np.arange(width) < self.lengths[:, None]
        ids = np.full(mask.shape, pad, dtype=np.int64)
        ids[mask] = self.flat()
        return ids, mask


def token_counts(rows: TokenRows, num_tokens: int) -> sparse.csr_array:
    """Texts as sparse rows, N x tokens: how often each token occurs in them.

    >>> token_counts(TokenRows.of([[2, 0, 2], []], max_length=4), 3).toarray().tolist()
    [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    """
    tokens = rows.flat()
    ends = np.concatenate([[0], np.cumsum(rows.lengths)])
    counts = sparse.csr_array((np.ones(len(tokens), dtype=np.float32), tokens, ends), shape=(len(rows), num_tokens))
    counts.sum_duplicates()
    return counts


def token_weights(rows: TokenRows) -> sparse.csr_array:
    """Texts as sparse rows, N x largest token id + 1: how often each token occurs in them, times its rarity.

    Formula, with n_t the number of texts that have token t: count ln((1 + N) / (1 + n_t)); a token that all have is 0.

    >>> token_weights(TokenRows.of([[1, 2, 2], [1]], max_length=4)).toarray().astype(float).round(2).tolist()
    [[0.0, 0.0, 0.81], [0.0, 0.0, 0.0]]
    """
    counts = token_counts(rows, int(rows.flat().max(initial=-1)) + 1)
    rarity = np.log((1 + len(rows)) / (1 + np.bincount(counts.indices, minlength=counts.shape[1])))
    counts.data = (counts.data * rarity[counts.indices]).astype(np.float32)
    return counts


def tokenise(
    texts: Sequence[str], tokenizer: Tokenizer, max_length: int, *, pad: int = 0, folder: Path | None = None
) -> TokenRows:
    """The token rows of texts.

    Args:
        texts: many texts; they are read twice where a folder is given.
        tokenizer: without padding, and cutting at ``max_length``.
        max_length: maximum number of tokens per text, special ones included.
        pad: the one token of a text that has none, so that every text has a vector.
        folder: where token rows are cached: mapped if they are there, else made and stored. Without one,
            tokens stay in memory up to 256 MiB, and beyond that in an unnamed file of the system's temporary folder.
    """
    if isinstance(texts, str):
        raise DataError("texts must be a sequence of texts, but one text was given; put it in a list")
    if folder is None:
        return _made(texts, tokenizer, max_length, pad)
    place = folder / f"{fingerprint(texts, tokenizer, max_length, pad)}.tokens"
    rows = _read(place, len(texts), max_length)
    if rows is not None:
        return rows
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with unfinished_file(place) as made, made.open("wb") as file:
            _write(file, texts, tokenizer, pad)
    except OSError as error:
        logger.warning("The tokens cannot be cached in %s (%s). They stay in memory.", place, error)
    rows = _read(place, len(texts), max_length)
    # The disk may fail: the caller gets the rows in any case.
    return _made(texts, tokenizer, max_length, pad) if rows is None else rows


def fingerprint(texts: Sequence[str], tokenizer: Tokenizer, max_length: int, pad: int) -> str:
    """A name for the token rows of these texts: another one as soon as a text or anything of the tokenizer differs."""
    digest = blake2b(f"{FORMAT} {max_length} {pad} {tokenizer.to_str()}".encode(), digest_size=16)
    for batch in _batches(texts):
        encoded = [text.encode("utf-8", "surrogatepass") for text in batch]
        # With the lengths, ["ab", "c"] is not ["a", "bc"].
        digest.update(np.fromiter(map(len, encoded), dtype="<i8", count=len(encoded)).data)
        digest.update(b"".join(encoded))
    return digest.hexdigest()


def _made(texts: Sequence[str], tokenizer: Tokenizer, max_length: int, pad: int) -> TokenRows:
    flat = SpilledArray(_DTYPE)
    lengths = [np.empty(0, dtype=np.int64)]
    for tokens, counts in _tokenised(texts, tokenizer, pad):
        flat.append(tokens)
        lengths.append(counts)
    return TokenRows._end_to_end(flat.array(), np.concatenate(lengths), max_length)


def _write(file: IO[bytes], texts: Sequence[str], tokenizer: Tokenizer, pad: int) -> None:
    checksum = 0

    def put(array: NDArray[Any]) -> None:
        nonlocal checksum
        data = array.astype(_DTYPE, copy=False).data
        file.write(data)
        checksum = zlib.crc32(data, checksum)

    lengths = [np.empty(0, dtype=np.int64)]
    for tokens, counts in _tokenised(texts, tokenizer, pad):
        put(tokens)
        lengths.append(counts)
    put(np.concatenate(lengths))
    file.write(np.array(checksum, dtype="<u4").tobytes())


def _read(place: Path, num_texts: int, max_length: int) -> TokenRows | None:
    """The token rows of a file, or None where there is none or it is not whole."""
    if not place.exists():
        return None
    try:
        numbers = np.memmap(place, dtype=_DTYPE, mode="r")
        checksum = 0
        for start in range(0, len(numbers) - 1, _BLOCK):
            checksum = zlib.crc32(numbers[start : min(start + _BLOCK, len(numbers) - 1)].data, checksum)
        if checksum != int(numbers[-1:].view("<u4")[0]):
            raise ValueError("its checksum is wrong")
    except (OSError, ValueError, IndexError) as error:
        logger.warning("The cached tokens in %s are damaged (%s). Tokenising again.", place, error)
        return None
    num_tokens = len(numbers) - 1 - num_texts
    # The tokens as a plain array over the map: its selections are plain arrays too.
    tokens = np.asarray(numbers[:num_tokens])
    return TokenRows._end_to_end(tokens, numbers[num_tokens:-1].astype(np.int64), max_length)


def _tokenised(
    texts: Sequence[str], tokenizer: Tokenizer, pad: int
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Flat tokens and their number in each text, batch by batch."""
    with progress.task("tokenising", len(texts), unit="texts") as advance:
        for batch in _batches(texts):
            found = [encoding.ids or [pad] for encoding in _encoded(batch, tokenizer.encode_batch_fast)]
            counts = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
            yield np.fromiter(chain.from_iterable(found), dtype=np.int32, count=int(counts.sum())), counts
            advance(len(batch))


def _encoded(batch: list[str], encode: Callable[[list[str]], list[Any]]) -> list[Any]:
    try:
        return encode(batch)
    except TypeError:
        # Half of a surrogate pair (a broken escape in somebody's JSON) has no UTF-8 form; it becomes "?".
        return encode([text.encode("utf-8", "replace").decode("utf-8") for text in batch])


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    source = iter(texts)
    while batch := list(islice(source, _BATCH)):
        yield batch
