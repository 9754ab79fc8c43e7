"""A transformer and its tokenizer before they are used: what must hold for them, and what is switched off."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from unidex.errors import ConfigError, ModelError


def check_transformer(model: Any, tokenizer: Any, max_length: int) -> None:
    """A transformer must be an encoder alone; the tokens of a text must fit its positions, and leave room for words."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(
            f"a transformer must be an encoder alone, but {model.config.model_type} has a decoder too; take another"
        )
    if not getattr(tokenizer, "is_fast", False) or len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ModelError(
            "a transformer must come with a fast tokenizer (tokenizer.json), but this has none; save it with one"
        )
    special = int(tokenizer.num_special_tokens_to_add())
    if max_length <= special:
        raise ConfigError(
            f"encoder.max_length must be more than the {special} special tokens of a text, but is {max_length}"
        )
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # Models like RoBERTa count positions after the position of padding.
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            if max_length > module.num_embeddings - first:
                raise ConfigError(
                    f"encoder.max_length must be at most the {module.num_embeddings - first} positions of the "
                    f"transformer, but is {max_length}"
                )


def give_padding(tokenizer: Any) -> None:
    """Name a token for padding where a tokenizer has none, as those of many decoders.

    Padding is masked, so that any token does. Without one, sentence-transformers does not encode texts of different
    lengths. A token that is special already: to make another one special would change how texts are cut.
    """
    if tokenizer.pad_token is None and tokenizer.all_special_tokens:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.all_special_tokens[0]


def drop_pooler(model: Any) -> None:
    """Take the model's own pooling layer away: it would be saved and moved about, yet never trained."""
    if "add_pooling_layer" in inspect.signature(type(model)).parameters:
        model.pooler = None


def switch_dropout_off(model: Any) -> None:
    """Switch dropout off, also in training: that of layers, and that of attention, which reads a number of its own."""
    for module in model.modules():
        for name in ("p", "dropout_prob", "attention_dropout"):
            if isinstance(getattr(module, name, None), float) and (name != "p" or isinstance(module, nn.Dropout)):
                setattr(module, name, 0.0)


def cutting_tokenizer(tokenizer: Any, max_length: int) -> Any:
    """A copy of the Rust tokenizer that cuts texts, so that the one that is saved stays as it was."""
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.enable_truncation(max_length)
    return copy
