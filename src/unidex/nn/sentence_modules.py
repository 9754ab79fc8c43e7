"""Folders of sentence-transformers: their pooling and the modules behind it, read and written as plain files.

``modules.json`` lists the modules of such a folder: a transformer or a table of token vectors first, then pooling,
dense layers and scaling to length 1. Only the library's own modules are read and written, so that nobody needs to trust
code in a folder. The library itself is not needed.

Shapes: N texts, T tokens, D dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unidex.errors import ModelError, quoted

LIST = "modules.json"
STATIC = "0_StaticEmbedding"
# Our name of a pooling -> theirs, and the key that older versions of the library write.
_POOLINGS = {
    "mean": ("mean", "pooling_mode_mean_tokens"),
    "cls": ("cls", "pooling_mode_cls_token"),
    "max": ("max", "pooling_mode_max_tokens"),
    "last": ("lasttoken", "pooling_mode_lasttoken"),
}
_OTHER_POOLINGS = ("pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens")
_ACTIVATIONS = "torch.nn.modules."


class Dense(nn.Module):
    """A linear layer and an activation; with ``residual``, the input is added behind it."""

    def __init__(self, linear: nn.Linear, activation: nn.Module | None = None, *, residual: bool = False) -> None:
        super().__init__()
        self.linear, self.activation = linear, nn.Identity() if activation is None else activation
        # The input passes through a linear layer of its own where it has another size.
        self.residual: nn.Linear | None = None
        self.adds_input = residual
        if residual and linear.in_features != linear.out_features:
            self.residual = nn.Linear(linear.in_features, linear.out_features, bias=False)

    def forward(self, vectors_ND: Tensor) -> Tensor:
        """N x D -> N x another D."""
        found: Tensor = self.activation(self.linear(vectors_ND))
        if not self.adds_input:
            return found
        return found + (vectors_ND if self.residual is None else self.residual(vectors_ND))


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, vectors_ND: Tensor) -> Tensor:
        """N x D -> N x D."""
        return nn.functional.normalize(vectors_ND, dim=1)


@dataclass(frozen=True, eq=False)
class SentenceModules:
    """What stands behind the transformer of a folder.

    Attributes:
        pooling: mean, cls, max or last.
        tail: the modules behind the pooling, without a last one that scales to length 1.
        transformer: the folder of the transformer itself.
        lower_case: whether texts are lower-cased first.
    """

    pooling: str = "mean"
    tail: list[nn.Module] = field(default_factory=list)
    transformer: str = ""
    lower_case: bool = False


def pooled(hidden_NTD: Tensor, mask_NT: Tensor | None, pooling: str) -> Tensor:
    """N x D float32 vectors of token vectors; tokens outside the mask do not count, and padding comes last."""
    if pooling == "cls":
        return hidden_NTD[:, 0].float()
    hidden_NTD = hidden_NTD.float()
    if pooling == "last":
        if mask_NT is None:
            return hidden_NTD[:, -1]
        last_N1D = (mask_NT.sum(dim=1) - 1)[:, None, None].expand(-1, 1, hidden_NTD.shape[2])
        return hidden_NTD.gather(1, last_N1D)[:, 0]
    if pooling == "max":
        if mask_NT is not None:
            hidden_NTD = hidden_NTD.masked_fill(~mask_NT.bool()[:, :, None], -torch.inf)
        return hidden_NTD.amax(dim=1)
    if mask_NT is None:
        return hidden_NTD.mean(dim=1)
    weights_NT = mask_NT.float()
    weights_NT = weights_NT / weights_NT.sum(dim=1, keepdim=True)
    return torch.einsum("ntd,nt->nd", hidden_NTD, weights_NT)


def size_behind(tail: Iterable[nn.Module], dim: int) -> int:
    """The dimension of vectors behind modules that get vectors of ``dim``."""
    for module in tail:
        if isinstance(module, Dense):
            if module.linear.in_features != dim:
                raise ModelError(
                    f"a dense layer must take the {dim} numbers of the module before it, but takes "
                    f"{module.linear.in_features}; the folder is damaged"
                )
            dim = module.linear.out_features
    return dim


def read_modules(folder: Path) -> SentenceModules | None:
    """The modules of a folder; None where it has no list of modules."""
    if not (folder / LIST).is_file():
        return None
    rows = _read_json(folder / LIST)
    try:
        modules = [(str(row["type"]), folder / str(row["path"])) for row in rows]
    except (KeyError, TypeError):
        raise ModelError(f"{folder / LIST}: each module must have a type and a path, but one has not") from None
    pooling, transformer, lower_case = "mean", str(folder), False
    tail: list[nn.Module] = []
    for place, (kind, where) in enumerate(modules):
        name = kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind
        if place == 0 and name == "Transformer":
            transformer = str(where)
            lower_case = bool(_read_json(where / "sentence_bert_config.json", {}).get("do_lower_case", False))
        elif place == 1 and name == "Pooling":
            pooling = _read_pooling(where / "config.json")
        elif place > 1 and name == "Dense":
            tail.append(_read_dense(where))
        elif place > 1 and name == "Normalize":
            tail.append(Normalize())
        else:
            raise ModelError(
                f"{folder / LIST}: modules must be Transformer, Pooling, then Dense and Normalize of "
                f"sentence-transformers, but module {place} is {quoted(kind, limit=80)}; take another"
            )
    if tail and isinstance(tail[-1], Normalize):
        # The heads scale their vectors to length 1 where the recipe says so; some recipes learn from their lengths.
        tail.pop()
    return SentenceModules(pooling, tail, transformer, lower_case)


def static_vectors(folder: Path, texts: Sequence[str]) -> Tensor:
    """The vectors that a folder of `write_static_modules` gives texts, N x D."""
    from tokenizers import Tokenizer

    first, *others = _read_json(folder / LIST)
    where = folder / first["path"]
    weight_VD = load_file(where / "model.safetensors")["embedding.weight"]
    encodings = Tokenizer.from_file(str(where / "tokenizer.json")).encode_batch(list(texts), add_special_tokens=False)
    tokens = torch.tensor([token for encoding in encodings for token in encoding.ids], dtype=torch.int64)
    counts = torch.tensor([0, *(len(encoding.ids) for encoding in encodings)])
    vectors_ND = nn.functional.embedding_bag(tokens, weight_VD, counts.cumsum(0)[:-1], mode="mean")
    for row in others:
        module = _read_dense(folder / row["path"]) if row["type"].endswith(".Dense") else Normalize()
        vectors_ND = module(vectors_ND)
    return vectors_ND.detach()


def write_transformer_modules(
    folder: Path, pooling: str, dim: int, max_length: int, tail: Sequence[nn.Module], similarity: str = "cosine"
) -> None:
    """List the modules of a folder that holds a transformer of so many dimensions, and write those behind it."""
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    # The keys of all versions of the library: older ones do not know `pooling_mode`.
    modes = {key: name == pooling for name, (_, key) in _POOLINGS.items()} | dict.fromkeys(_OTHER_POOLINGS, False)
    where = folder / "1_Pooling"
    where.mkdir()
    _write_json(where / "config.json", {"word_embedding_dimension": dim, **modes, "include_prompt": True})
    _write_list(folder, [("", "Transformer"), ("1_Pooling", "Pooling"), *_write_tail(folder, 2, tail)], similarity)


def write_static_modules(
    folder: Path, tokenizer: Any, vectors_VD: Tensor, tail: Sequence[nn.Module], similarity: str = "cosine"
) -> None:
    """Write a table of token vectors, whose mean is a text's vector, with its tokenizer and the modules behind it."""
    where = folder / STATIC
    where.mkdir()
    tokenizer.save(str(where / "tokenizer.json"))
    save_file({"embedding.weight": vectors_VD.contiguous()}, where / "model.safetensors")
    _write_list(folder, [(where.name, "StaticEmbedding"), *_write_tail(folder, 1, tail)], similarity)


def _write_tail(folder: Path, first: int, tail: Sequence[nn.Module]) -> list[tuple[str, str]]:
    found = []
    for place, module in enumerate(tail, first):
        where = folder / f"{place}_{type(module).__name__}"
        where.mkdir()
        if isinstance(module, Dense):
            _write_dense(where, module)
        else:
            # An empty folder would be lost in a copy or an upload.
            _write_json(where / "config.json", {})
        found.append((where.name, type(module).__name__))
    return found


def _write_list(folder: Path, modules: Sequence[tuple[str, str]], similarity: str) -> None:
    # These names are known to versions from 2 to 6.
    rows = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(modules)
    ]
    _write_json(folder / LIST, rows)
    about: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": similarity}
    _write_json(folder / "config_sentence_transformers.json", about)


def _write_dense(folder: Path, module: Dense) -> None:
    linear, activation = module.linear, type(module.activation)
    about: dict[str, Any] = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__qualname__}",
        **({"use_residual": True} if module.adds_input else {}),
    }
    _write_json(folder / "config.json", about)
    save_file({name: value.contiguous() for name, value in module.state_dict().items()}, folder / "model.safetensors")


def _read_dense(folder: Path) -> Dense:
    file = folder / "config.json"
    about = _read_json(file)
    name = about.get("activation_function", "torch.nn.modules.activation.Tanh")
    # The class alone, from torch alone: a folder must not name code to run.
    activation = getattr(nn, name.rpartition(".")[2], None) if str(name).startswith(_ACTIVATIONS) else None
    if not (isinstance(activation, type) and issubclass(activation, nn.Module)):
        raise ModelError(f"{file}: an activation must be a class of {_ACTIVATIONS[:-1]}, but is {quoted(name)}")
    source = "sentence_embedding"
    if about.get("module_input_name", source) != source or about.get("module_output_name") not in (None, source):
        raise ModelError(f"{file}: a dense layer must read and write the vector of a text, but this does not")
    try:
        linear = nn.Linear(about["in_features"], about["out_features"], bias=about.get("bias", True))
        module = Dense(linear, activation(), residual=about.get("use_residual", False))
        module.load_state_dict(load_file(folder / "model.safetensors"))
    except (KeyError, TypeError, RuntimeError, OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{folder}: a dense layer (model.safetensors) must be here, but: {reason}") from None
    return module.float()


def _read_pooling(file: Path) -> str:
    about = _read_json(file)
    found = about.get("pooling_mode")
    if found is None:
        found = [key for key, value in about.items() if key.startswith("pooling_mode_") and value is True]
        found = found or [_POOLINGS["mean"][1]]
    found = [found] if isinstance(found, str) else list(found)
    names = [name for name, theirs in _POOLINGS.items() if found[0] in theirs]
    if len(found) > 1 or not names:
        raise ModelError(
            f"{file}: pooling must be one of mean, cls, max and lasttoken, but is {', '.join(map(str, found))}; set "
            "encoder.path to the transformer's own folder and encoder.pooling"
        )
    return names[0]


def _read_json(file: Path, default: Any = None) -> Any:
    if default is not None and not file.is_file():
        return default
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: a part of a sentence-transformers folder must be here, but: {error}") from None


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
