"""Synonyms in context: a word is masked, and a masked language model says what else could stand there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unidex import progress
from unidex.errors import ConfigError, MissingExtraError, quoted

MASKED = "mlm:"

_REPLACE = 113  # part of a seed: what else changes words has other numbers
_WORD = re.compile(r"\w+")
_NUM_CHOICES = 3
_NUM_TOKENS = 50  # of highest probability, among which words are looked for
_AT_ONCE = 64  # masked texts


def replace_masked(texts: Sequence[str], model: str, share: float, seed: int) -> list[str]:
    """Each text with about ``share`` of its words replaced by what a masked language model expects in their place.

    Words are masked one at a time, with the rest of the text around them. The new word is drawn from the three most
    likely ones that are one token of letters and not the word itself. ``model`` is a folder or a hub name.

    References: synonym replacement in the comparison of Gandalf (arXiv 2405.04545), "chosen via BERT similarity".
    """
    tokenizer, network = _loaded(model)
    allowed = _whole_words(tokenizer)
    rng = np.random.default_rng([seed, _REPLACE])
    places = [  # text, start and end of each word to replace
        (number, *match.span())
        for number, text in enumerate(texts)
        for match in _WORD.finditer(text)
        if rng.random() < share
    ]
    choices = rng.random(len(places))
    new: dict[int, list[tuple[int, int, str]]] = {}
    with progress.task("replacing words", len(places), unit="words") as advance:
        for first in range(0, len(places), _AT_ONCE):
            block = places[first : first + _AT_ONCE]
            masked = [
                texts[number][:start] + tokenizer.mask_token + texts[number][end:] for number, start, end in block
            ]
            for place, choice, words in zip(
                block, choices[first:], _expected(tokenizer, network, masked), strict=False
            ):
                number, start, end = place
                old = texts[number][start:end].lower()
                others = [word for word in words if word in allowed and word != old][:_NUM_CHOICES]
                if others:
                    new.setdefault(number, []).append((start, end, others[int(choice * len(others))]))
            advance(len(block))
    return [_spliced(text, new.get(number, [])) for number, text in enumerate(texts)]


def _spliced(text: str, changes: list[tuple[int, int, str]]) -> str:
    """A text with some of its parts replaced.

    >>> _spliced("red straw hat", [(0, 3, "blue"), (10, 13, "cap")])
    'blue straw cap'
    """
    for start, end, word in reversed(changes):
        text = text[:start] + word + text[end:]
    return text


@torch.inference_mode()
def _expected(tokenizer: Any, network: Any, masked: list[str]) -> list[list[str]]:
    """The most likely tokens at the mask of each text; none where the mask is beyond the model's length."""
    longest = min(tokenizer.model_max_length, network.config.max_position_embeddings)
    inputs = tokenizer(masked, return_tensors="pt", padding=True, truncation=True, max_length=longest)
    is_mask = inputs["input_ids"] == tokenizer.mask_token_id
    logits = network(**inputs).logits
    places = is_mask.int().argmax(1)
    best = logits[torch.arange(len(masked)), places].topk(min(_NUM_TOKENS, logits.shape[-1]), dim=1).indices
    found = [tokenizer.convert_ids_to_tokens(ids) for ids in best.tolist()]
    return [words if has_mask else [] for words, has_mask in zip(found, is_mask.any(1).tolist(), strict=True)]


def _whole_words(tokenizer: Any) -> set[str]:
    """Tokens that are words: of letters, not the continuation of another token, not special."""
    return {token for token in tokenizer.get_vocab() if token.isalpha() and token.islower()}


def _loaded(model: str) -> tuple[Any, Any]:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("--synonyms mlm:MODEL", "transformers") from None
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        network, report = transformers.AutoModelForMaskedLM.from_pretrained(model, output_loading_info=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split("\n")[0].split())
        raise ConfigError(
            f"--synonyms mlm:MODEL must name a masked language model, a folder or a name on the hub, but "
            f"{quoted(model, limit=200)} cannot be read ({reason}); give another"
        ) from None
    if tokenizer.mask_token is None or report["missing_keys"]:
        raise ConfigError(
            f"--synonyms mlm:MODEL must name a masked language model, but {quoted(model, limit=200)} has no trained "
            "head for masked words; give another, such as distilbert-base-uncased"
        )
    return tokenizer, network.eval()
