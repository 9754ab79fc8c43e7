"""What a registered encoder can do, as far as a recipe asks: the rules of a recipe read it without loading torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncoderCapabilities:
    """What an encoder can do, and what it needs.

    Attributes:
        has_table: it has a row table of word vectors, of which classifier parts can be made.
        has_layers: the levels of a label tree can read its layers (tree.layers).
        has_twin: it can make a second encoder of the same features for the classifier alone.
        needs_whole_batch: it must see all texts of a step at once, as BatchNorm does.
        has_staged_dropout: its dropout may differ between the stages of a recipe.
        is_pretrained: its dense layers were trained before and learn with train.lr_encoder, not with train.lr_heads.
    """

    has_table: bool = False
    has_layers: bool = False
    has_twin: bool = False
    needs_whole_batch: bool = False
    has_staged_dropout: bool = False
    is_pretrained: bool = False
