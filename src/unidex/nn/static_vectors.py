"""Static token vectors of a trained model as the initial vectors of words, in place of random ones.

Shapes: F features, W words, V tokens, S dimensions of the token vectors, D of the encoder's table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex import progress
from unidex.nn.token_vectors import TokenVectors, Vectors, read_token_vectors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Marks that tokenizers put at the start of a word, or of a piece inside one.
_WORD_MARKS = "\u2581\u0120"
_PIECE_MARK = "##"
_BATCH = 10_000


def initialise_from(encoder: Any, source: str) -> None:
    """Initialise the vectors of an encoder's features, ``encoder.table``, with static token vectors.

    A word's vector is the mean of its tokens', a bigram's the mean of its two words'. The mean of all tokens of the
    source is subtracted, since it distinguishes no texts. (Not the mean of all features: the mean of a few features is
    a topic.) The rest is fitted to the encoder's dimension, and each row gets the mean length of the random vectors, so
    that only the weights of features decide how much they count. Features without a name (buckets) or without a known
    token keep their random vectors.

    ``source`` is "wordllama" or "minilm" for the weights inside those packages, or a folder with token vectors
    (.safetensors or .npy) and their tokenizer.json.
    """
    names = encoder.features.names
    known = read_token_vectors(source)
    with progress.task("initial vectors", len(names), unit="features") as advance:
        vectors_FS, found = feature_vectors(list(names), known)
        rows = np.flatnonzero(found)
        fitted_FD = fit_dimension(vectors_FS[rows] - known.vectors.mean(axis=0), encoder.table.dim)
        lengths = np.linalg.norm(fitted_FD, axis=1)
        # A row of length 0 has no direction; it keeps its random one.
        has_direction = lengths > 1e-6 * lengths.max(initial=0.0)
        table = encoder.table.weight
        fitted_FD = (
            fitted_FD[has_direction]
            / lengths[has_direction, None]
            * float(torch.linalg.vector_norm(table, dim=1).mean())
        )
        table[torch.from_numpy(rows[has_direction]).to(table.device)] = torch.from_numpy(fitted_FD).to(table)
        advance(len(names))


def feature_vectors(names: Sequence[str], known: TokenVectors) -> tuple[Vectors, NDArray[np.bool_]]:
    """F x S vectors of features by their names, and which of them have one."""
    words_of = [_words(name) for name in names]
    number = {word: at for at, word in enumerate(dict.fromkeys(word for words in words_of for word in words))}
    words_WS, has_vector = _word_vectors(list(number), known)
    mean_FW = _averaging([[number[word] for word in words if has_vector[number[word]]] for words in words_of], words_WS)
    return mean_FW @ words_WS, np.diff(mean_FW.indptr) > 0


def fit_dimension(vectors_FS: Vectors, dim: int) -> Vectors:
    """F x D: the vectors along their D principal directions; turned into D dimensions where they have fewer.

    With fewer dimensions, inner products lose as little as a linear map can let them; with more, nothing.

    >>> flat = np.array([[3.0, 0.0, 4.0], [-3.0, 0.0, -4.0]], dtype=np.float32)
    >>> fit_dimension(flat, 1).round(3).tolist()
    [[5.0], [-5.0]]
    >>> more = fit_dimension(flat, 5)
    >>> more.shape, bool(np.allclose(more @ more.T, flat @ flat.T, atol=1e-5))
    ((2, 5), True)
    """
    size = vectors_FS.shape[1]
    if size == dim:
        return vectors_FS
    if size < dim:
        # Rows of random orthonormal directions: every dimension of the bag is used from the start.
        square = np.random.default_rng(0).standard_normal((dim, size))
        turn_SD = np.linalg.qr(square)[0].T
    else:
        _, directions_SS = np.linalg.eigh((vectors_FS.T @ vectors_FS).astype(np.float64))
        turn_SD = directions_SS[:, ::-1][:, :dim]
        # The library chooses the sign of a direction; fixed, it is the same on other machines.
        turn_SD = turn_SD * np.sign(turn_SD[np.abs(turn_SD).argmax(axis=0), np.arange(dim)])
    return vectors_FS @ turn_SD.astype(np.float32)


def _words(name: str) -> list[str]:
    """The words of a feature's name: two of a bigram, the letters of an n-gram, a subword in its brackets.

    >>> _words("golden ratio"), _words("*old*"), _words("[##ing]")
    (['golden', 'ratio'], ['old'], ['[##ing]'])
    """
    return [name] if name.startswith("[") else [word for word in name.replace("*", "").split(" ") if word]


def _word_vectors(words: Sequence[str], known: TokenVectors) -> tuple[Vectors, NDArray[np.bool_]]:
    """W x S means of the vectors of the words' tokens, and which words have a token that is known."""
    tokenizer = known.tokenizer
    # A tokenizer may have other tokens for the first word of a text; those inside were trained on far more texts.
    first_and_second = tokenizer.encode("the the", add_special_tokens=False).ids
    half = len(first_and_second) // 2
    space = "" if first_and_second[:half] == first_and_second[half:] else " "
    texts, direct = [], {}
    for at, word in enumerate(words):
        if word.startswith("["):
            token = word[1:-1]
            found = tokenizer.token_to_id(token)
            if found is not None:
                direct[at] = [found]
            word = token.removeprefix(_PIECE_MARK).strip(_WORD_MARKS)
        texts.append(space + word)
    unknown = _unknown_token(tokenizer)
    kept: list[list[int]] = []
    for start in range(0, len(texts), _BATCH):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + _BATCH], add_special_tokens=False):
            kept.append([token for token in direct.get(len(kept), encoding.ids) if token != unknown])
    mean_WV = _averaging(kept, known.vectors)
    return mean_WV @ known.vectors, np.diff(mean_WV.indptr) > 0


def _unknown_token(tokenizer: Tokenizer) -> int | None:
    model = json.loads(tokenizer.to_str())["model"]
    # Unigram models have the number, the others the token.
    number = model.get("unk_id")
    return number if isinstance(number, int) else tokenizer.token_to_id(model.get("unk_token") or "")


def _averaging(columns_of: Sequence[Sequence[int]], vectors: Vectors) -> sparse.csr_array:
    """The matrix whose product with vectors is the mean of those that each row names."""
    counts = np.fromiter(map(len, columns_of), dtype=np.int64, count=len(columns_of))
    indices = np.fromiter((at for columns in columns_of for at in columns), dtype=np.int64, count=int(counts.sum()))
    shares = np.repeat(1 / np.maximum(counts, 1), counts).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_array((shares, indices, indptr), shape=(len(columns_of), len(vectors)))
