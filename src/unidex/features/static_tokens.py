"""Features as tokens: the vector of a text as a mean of vectors of its tokens, exactly or nearly.

A tokenizer gives one stream of tokens, and a table one vector per token. Where the features of a text are the tokens of
its subword tokenizer, each counted as often as it occurs, nothing is lost. Words with their parts and n-grams become
one token per known word; what does not fit is named.

Shapes: V tokens, F features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from unidex.features.extractor import FeatureExtractor
from unidex.features.groups import SUBWORD_SEED
from unidex.features.hash_keys import mix

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNKNOWN = "[UNK]"
# What stands between words, as near to ours as a regular expression comes.
_BETWEEN_WORDS = r"[^\p{L}\p{M}\p{N}_]+"


@dataclass(frozen=True, eq=False)
class StaticTokens:
    """A tokenizer and the features that each of its tokens brings, V x F, with their weights."""

    tokenizer: Tokenizer
    weights_VF: sparse.csr_array


def lost_features(features: FeatureExtractor) -> list[str]:
    """What of the features has no place in a mean of token vectors; empty where nothing is lost."""
    settings = features.settings
    found = ["forms of words by language"] if not features.analyser.is_plain else []
    if settings.words:
        found.append("words that are not in the vocabulary")
        found += ["parts of identifiers"] if settings.parts else []
        found += ["bigrams"] if settings.bigrams else []
        found += ["subwords beside words"] if settings.subwords else []
    found += ["the weight of first words"] if settings.lead_weight else []
    found += ["damped counts of repeated words (sublinear_tf)"] if settings.sublinear_tf else []
    return found


def static_tokens(features: FeatureExtractor) -> StaticTokens:
    """The tokens of features, without what `lost_features` names."""
    return _of_words(features) if features.settings.words else _of_subwords(features)


def _of_subwords(features: FeatureExtractor) -> StaticTokens:
    tokenizer = features.tokenizer
    assert tokenizer is not None
    tokens = np.arange(max(tokenizer.get_vocab().values()) + 1, dtype=np.uint64)
    ids = features.vocabulary.lookup(mix(tokens + np.uint64(SUBWORD_SEED)))
    # A token that no text had may have no feature: it counts nothing.
    known = np.flatnonzero(ids >= 0)
    shape = (len(tokens), features.num_features)
    weights_VF = sparse.csr_array((features.idf[ids[known]], (known, ids[known])), shape=shape, dtype=np.float32)
    return StaticTokens(tokenizer, weights_VF)


def _of_words(features: FeatureExtractor) -> StaticTokens:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    # Names of bigrams have a blank, those of n-grams an asterisk, those of subwords a bracket.
    named = [(name, own) for own, name in enumerate(features.names) if name and not set(name) & set(" *[")]
    tokenizer = Tokenizer(
        models.WordLevel({_UNKNOWN: 0} | {name: at for at, (name, _) in enumerate(named, 1)}, unk_token=_UNKNOWN)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_BETWEEN_WORDS), "removed")
    rows_NF = features.transform([name for name, _ in named])
    # A row has length 1: undone by the weight that the word itself would have in a plain row.
    own = np.array([feature for _, feature in named], dtype=np.int64)
    of_own: Any = np.asarray(rows_NF[np.arange(len(own)), own]).ravel()
    scales = np.where(of_own > 0, features.idf[own] / np.where(of_own > 0, of_own, 1), 0).astype(np.float32)
    none_1F = sparse.csr_array((1, features.num_features), dtype=np.float32)
    rows_NF = sparse.diags_array(scales, format="csr") @ rows_NF
    return StaticTokens(tokenizer, sparse.csr_array(sparse.vstack([none_1F, rows_NF], format="csr")))
