"""What a registered encoder can do, as far as a recipe asks: the rules of a recipe read it without loading torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncoderCapabilities:
    """What an encoder can do, and what it needs."""

    has_table: bool = False  # it has a row table of word vectors, of which classifier parts can be made
    has_layers: bool = False  # the levels of a label tree can read its layers (tree.layers)
    has_twin: bool = False  # it can make a second encoder of the same features for the classifier alone
    needs_whole_batch: bool = False  # it must see all texts of a step at once, as BatchNorm does
    reads_weights: bool = False  # it reads weights of features, among which a frozen encoder may have columns
    has_staged_dropout: bool = False  # its dropout may differ between the stages of a recipe
    # its dense layers were trained before and learn with train.lr_encoder, not with train.lr_heads
    is_pretrained: bool = False
    saves_weights: bool = False  # its folder has its weights, in the form that other tools read
