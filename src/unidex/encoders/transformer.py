"""The transformer encoder: any encoder of the Hugging Face hub, from a folder or by name.

Shapes: N texts, T tokens, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unidex.config import Config
from unidex.config import Encoder as Settings
from unidex.config.capabilities import EncoderCapabilities
from unidex.encoders.registry import RegisteredEncoder, register
from unidex.errors import ConfigError, ModelError, listed, quoted
from unidex.features.token_chunks import chunk_ends
from unidex.features.tokens import TokenRows, tokenise
from unidex.features.word_places import trimmed
from unidex.nn.linear_layers import faster_linear_layers
from unidex.nn.loss_scale import LossScale
from unidex.nn.low_rank import add_low_rank, merge_low_rank
from unidex.nn.onnx_graph import OnnxGraph
from unidex.nn.pretrained_source import (
    lower_case,
    modules_folder,
    reading,
    silent,
    source_of,
    transformers_library,
)
from unidex.nn.recent_vectors import RecentVectors
from unidex.nn.row_table import Touched
from unidex.nn.sentence_modules import (
    SentenceModules,
    pooled,
    read_modules,
    size_behind,
    write_transformer_modules,
)
from unidex.nn.token_vectors import MINILM
from unidex.nn.transformer_setup import (
    check_transformer,
    cutting_tokenizer,
    drop_pooler,
    give_padding,
    switch_dropout_off,
)

# Minimum and maximum number of tokens, padding included, of one pass through the layers (`chunk_ends`). The first keeps
# a processor busy, the second bounds the activations of a layer. One thread of a CPU gains no more above them; for
# other devices they are a guess.
_TOKENS_ON_CPU = (1024, 4096)
_TOKENS_ELSEWHERE = (16_384, 65_536)


class TransformerEncoder(nn.Module):
    """Token ids -> layers of a transformer -> one vector per text.

    Attention runs in torch's fused kernel (sdpa) where the transformer has that; the library chooses it by itself.

    The tokenizer must be a fast one. ``cache`` is a folder where token ids are stored between runs, or None.

    Attributes:
        pooling: how token vectors become one.
        tail: modules behind the pooling, where a sentence-transformers folder has some.
        layer_dim: dimension of the transformer's layers.
        dim: the same, or what the tail makes of it.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: Settings, modules: SentenceModules | None = None) -> None:
        super().__init__()
        modules = modules or SentenceModules()
        check_transformer(model, tokenizer, settings.max_length)
        give_padding(tokenizer)
        drop_pooler(model)  # We pool ourselves.
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if not settings.own_dropout:
            switch_dropout_off(model)
        # Weights are float32 whatever they were saved as: half precision loses small steps. autocast rounds copies.
        self.model, self.tokenizer, self.settings = model.float(), tokenizer, settings
        self.pooling = modules.pooling if settings.pooling == "auto" else settings.pooling
        self.tail = nn.Sequential(*modules.tail)
        self.layer_dim = int(model.config.hidden_size)
        self.dim = size_behind(self.tail, self.layer_dim)
        # Buffers that are there in float16 only, so that other models have the same weights as before.
        self.loss_scale = LossScale(self.parameters()) if settings.autocast == "float16" else None
        if settings.compile != "off":
            # In place, which keeps the names of weights; lengths differ from chunk to chunk.
            self.model.compile(backend=settings.compile, dynamic=True)
        self.cache: Path | None = None
        self._recent: RecentVectors | None = None
        self._pad = int(tokenizer.pad_token_id or 0)
        self._fast_tokenizer = cutting_tokenizer(tokenizer, settings.max_length)
        self.eval()

    @classmethod
    def build(cls, config: Config, texts: Sequence[str], label_texts: Sequence[str]) -> TransformerEncoder:
        """The transformer of encoder.path, to be trained; it does not depend on the texts."""
        encoder = cls.from_pretrained(config.encoder.path, config.encoder)
        encoder._recent = RecentVectors()
        return encoder

    @classmethod
    def load(cls, config: Config, folder: Path) -> TransformerEncoder:
        """The transformer that ``save`` wrote; with random weights in model folders of formats before 4."""
        transformers = transformers_library()
        source = source_of(str(folder.resolve()))
        modules = read_modules(folder)
        with reading(source):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            if modules is None:
                model = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(source))
            else:
                model = transformers.AutoModel.from_pretrained(source)
        return cls(model, tokenizer, config.encoder, modules)

    @classmethod
    def from_pretrained(cls, path: str, settings: Settings) -> TransformerEncoder:
        """A trained transformer from a folder, by a name on the hub, or ``minilm`` from the package of that name."""
        if not path:
            raise ConfigError(
                "encoder.path must name a transformer (a folder, a name on the Hugging Face hub, or "
                f"{quoted(MINILM)}), but is empty"
            )
        transformers = transformers_library()
        modules = read_modules(modules_folder(path))
        source = source_of(path if modules is None else modules.transformer)
        with reading(source):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            model, report = transformers.AutoModel.from_pretrained(source, output_loading_info=True)
        missing = [name for name in report["missing_keys"] if "pooler" not in name.split(".")]
        if missing:
            raise ModelError(f"{source}: all weights of the transformer must be there, but not {listed(missing)}")
        if modules is not None and modules.lower_case:
            lower_case(tokenizer)
        if settings.low_rank and not add_low_rank(model, settings.low_rank):
            raise ConfigError(
                f"encoder.low_rank needs a transformer with linear layers, but {model.config.model_type} has none; "
                "leave it out"
            )
        return cls(model, tokenizer, settings, modules)

    def fold(self) -> None:
        """Add changes of low rank to the weights: only training knows them."""
        merge_low_rank(self.model)
        self._expect_new_weights()

    def train(self, mode: bool = True) -> TransformerEncoder:
        """Switch training on or off; weights change only between the two, by `fold`, or where a state is loaded."""
        self._expect_new_weights()
        return super().train(mode)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        self._expect_new_weights()
        super()._load_from_state_dict(*arguments)

    def _expect_new_weights(self) -> None:
        recent: RecentVectors | None = getattr(self, "_recent", None)
        if recent is not None:
            recent.expect_new_weights()

    def forget_vectors(self) -> None:
        """Free the memory of vectors that only training asks for again."""
        self._recent = None

    def save(self, folder: Path) -> None:
        """Write the transformer, its tokenizer and the modules behind it, weights included.

        transformers and sentence-transformers open the folder as it is.
        """
        self.write_sentence_modules(folder, [], "cosine")

    def write_sentence_modules(self, folder: Path, head: Sequence[nn.Module], similarity: str) -> list[str]:
        """Write the same folder with the modules of a head behind; nothing is lost, so that the result is empty."""
        folder.mkdir(parents=True, exist_ok=True)
        with silent():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        tail = [*self.tail, *head]
        write_transformer_modules(folder, self.pooling, self.layer_dim, self.settings.max_length, tail, similarity)
        return []

    def onnx_vectors(self, graph: OnnxGraph, folder: Path) -> str:
        """The encoder as a part of an ONNX graph, with its tokenizer, which cuts and pads, written to a folder."""
        padded = type(self._fast_tokenizer).from_str(self._fast_tokenizer.to_str())
        padded.enable_padding(pad_id=self._pad, pad_token=self.tokenizer.pad_token or "[PAD]")
        padded.save(str(folder / "tokenizer.json"))
        ids, present = self.prepare(["a", "a text of several words"]).padded(self._pad)
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(present).long()}
        return graph.trace(_Plain(self), inputs, "encoder/")

    def prepare(self, texts: Any) -> TokenRows:
        """Texts as token ids, made once; ``forward`` takes rows of it."""
        return tokenise(texts, self._fast_tokenizer, self.settings.max_length, pad=self._pad, folder=self.cache)

    def stack(self, parts: list[TokenRows]) -> TokenRows:
        """Prepared texts one after the other."""
        return TokenRows.stack(parts)

    def forward(
        self, rows: TokenRows, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> Tensor:
        """N x D float32 vectors.

        Texts of similar length go through the layers together, so that little is computed on padding. ``touched`` and
        ``rng`` are for encoders with tables: every weight here is dense, and its dropout draws from torch.
        """
        if self._recent is None or self.training or torch.is_grad_enabled():
            return self._encoded(rows)
        return self._recent.of(rows, self.parameters(), self._encoded)

    def at_layers(self, rows: TokenRows, layers: list[list[int]]) -> tuple[Tensor, list[Tensor]]:
        """The vectors, and for each list of layers, counted from 1, their outputs pooled and side by side; one pass."""
        whole = self._encoded(rows, [layer for some in layers for layer in some])
        widths = [self.dim, *(self.layer_dim * len(some) for some in layers)]
        last, *found = whole.split(widths, dim=1)  # type: ignore[no-untyped-call]
        return last, found

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return int(self.model.config.num_hidden_layers)

    def _encoded(self, rows: TokenRows, layers: Sequence[int] = ()) -> Tensor:
        """The vectors of texts, and after them the vectors of these layers."""
        device = next(self.model.parameters()).device
        if len(rows) == 0:
            return torch.empty(0, self.dim + self.layer_dim * len(layers), device=device)
        # Longest first: a step that does not fit into memory fails at once.
        order = np.argsort(-rows.lengths, kind="stable")
        limits = _TOKENS_ON_CPU if device.type == "cpu" else _TOKENS_ELSEWHERE
        starts = [0, *chunk_ends(rows.lengths[order], *limits)]
        chunks = [self._chunk(rows[order[start:end]], device, layers) for start, end in pairwise(starts)]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        vectors = torch.cat(chunks)
        if self.loss_scale is not None:
            vectors = self.loss_scale(vectors)
        return vectors.index_select(0, _moved(back, device))

    def _chunk(self, rows: TokenRows, device: torch.device, layers: Sequence[int]) -> Tensor:
        ids, present = rows.padded(self._pad)
        # Known here, without asking the device: where nothing is padded, attention needs no mask and is faster.
        mask_NT = None if present.all() else _moved(present, device)
        with self._autocast(device), self._products(device):
            # Masks are whole numbers there: some models multiply with them.
            attended = None if mask_NT is None else mask_NT.long()
            if layers:
                found = self.model(input_ids=_moved(ids, device), attention_mask=attended, output_hidden_states=True)
                # The first of these are the embeddings, before any layer.
                outputs = [pooled(found.hidden_states[layer], mask_NT, self.pooling) for layer in layers]
                return torch.cat([self._pooled(found.last_hidden_state, mask_NT), *outputs], dim=1)
            hidden_NTD: Tensor = self.model(input_ids=_moved(ids, device), attention_mask=attended).last_hidden_state
        return self._pooled(hidden_NTD, mask_NT)

    def from_embeddings(self, text: str, copies: int) -> tuple[Tensor, Tensor]:
        """Vectors of so many copies of one text, and the vectors of its tokens they were made from, as a leaf."""
        device = next(self.model.parameters()).device
        ids, _ = self.prepare([text]).padded(self._pad)
        with torch.no_grad():
            tokens_1TD = self.model.get_input_embeddings()(_moved(ids, device))
        embedded_NTD = tokens_1TD.expand(copies, -1, -1).clone().requires_grad_()
        with self._autocast(device):
            hidden_NTD = self.model(inputs_embeds=embedded_NTD).last_hidden_state
        return self._pooled(hidden_NTD, None), embedded_NTD

    def token_places(self, text: str) -> list[tuple[int, int]]:
        """Where each token starts and ends in a text; -1, -1 for special tokens, which are not of the text."""
        encoding = self._fast_tokenizer.encode(text)
        places = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        # A text without tokens has one for padding.
        return [(-1, -1) if special else trimmed(text, *span) for span, special in places] or [(-1, -1)]

    def _pooled(self, hidden_NTD: Tensor, mask_NT: Tensor | None) -> Tensor:
        vectors_ND: Tensor = self.tail(pooled(hidden_NTD, mask_NT, self.pooling))
        return vectors_ND

    def _autocast(self, device: torch.device) -> torch.autocast:
        dtype = torch.float16 if self.settings.autocast == "float16" else torch.bfloat16
        return torch.autocast(device.type, dtype=dtype, enabled=self.settings.autocast != "off")

    def _products(self, device: torch.device) -> AbstractContextManager[Any]:
        """The library of linear layers; recomputed and compiled layers, and half precision, keep that of torch."""
        plain = self.settings.autocast == "off" and self.settings.compile == "off"
        return faster_linear_layers(device) if plain and not self.settings.gradient_checkpointing else nullcontext()


class _Plain(nn.Module):
    """The encoder as a function of padded token ids and their mask."""

    def __init__(self, encoder: TransformerEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids_NT: Tensor, mask_NT: Tensor) -> Tensor:
        """N x D vectors."""
        hidden_NTD = self.encoder.model(input_ids=ids_NT, attention_mask=mask_NT).last_hidden_state
        return self.encoder._pooled(hidden_NTD, mask_NT)


def _moved(array: NDArray[Any], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    # From pinned memory a copy is queued like any other work, and nothing waits for it.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


register(
    RegisteredEncoder(
        "transformer",
        build=TransformerEncoder.build,
        load=TransformerEncoder.load,
        must_match=("pooling",),
        can=EncoderCapabilities(has_layers=True, is_pretrained=True, saves_weights=True),
    )
)
