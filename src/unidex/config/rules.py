"""Every refused combination of settings, in one table. A recipe is checked when it is read and before it is trained.

A rule has circumstances, all of which must hold, and conflicts, none of which may hold then. Both are conditions on
settings, or on facts of the run such as the number of processes. ``python -m unidex.config.rules`` prints the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unidex.config.capabilities import EncoderCapabilities
from unidex.config.recipe import Config
from unidex.config.section import Section
from unidex.config.stages import is_of_network
from unidex.errors import ConfigError


@dataclass(frozen=True)
class Facts:
    """What rules ask: the recipe of a stage, and what is known of the run."""

    config: Config
    is_last: bool = True  # no other stage follows
    num_stages: int = 1
    encoder: EncoderCapabilities | None = None  # None where it is not loaded, and rules about it are left out
    num_processes: int = 1
    has_label_texts: bool = True
    device: str = "cpu"
    has_folder: bool = True
    stage: str = ""
    last: Config | None = None  # the recipe of the last stage

    def value(self, name: str) -> Any:
        """The value of a setting (``section.key``) or of a fact."""
        section, dot, key = name.partition(".")
        if not dot:
            return _FACTS[name][1](self)
        return getattr(self.encoder if section == "encoder_can" else getattr(self.config, section), key)


@dataclass(frozen=True)
class Condition:
    """A test of a value, and how the table writes it."""

    text: str
    holds: Callable[[Any], bool]


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def is_(wanted: Any) -> Condition:
    """The value is this one."""
    return Condition(f"= {_toml(wanted)}", lambda value: bool(value == wanted))


def is_not(other: Any) -> Condition:
    """The value is not this one."""
    return Condition(f"other than {_toml(other)}", lambda value: bool(value != other))


ON, OFF, IS_SET = is_(True), is_(False), is_not(0)
YES = Condition("", bool)
_STORED = Condition("other than 'auto' or 'exact'", lambda value: value not in ("auto", "exact"))
_BY_NAME = Condition("other than 'none' or 'auto'", lambda value: value not in ("none", "auto"))

# Facts that are more than one setting: their text, and how they are found.
_FACTS: dict[str, tuple[str, Callable[[Facts], Any]]] = {
    "tree": ("a label tree (tree.levels)", lambda facts: facts.config.has_tree),
    "chosen_labels": (
        "a label tree (tree.levels) or pool.batches = 'labels'",
        lambda facts: facts.config.has_tree or facts.config.pool.batches == "labels",
    ),
    "separate_encoders": (
        "an encoder of the classifier's own (heads.shared_encoder = false)",
        lambda facts: facts.config.heads.separate_encoders,
    ),
    "parts": (
        "classifiers made of words (heads.classifier_parts)",
        lambda facts: facts.config.heads.classifier and facts.config.heads.classifier_parts != ["free"],
    ),
    "other_search": (
        "heads.classifier_search_vectors other than heads.classifier_normalised trains",
        lambda facts: (
            facts.config.heads.classifier_normalised != (facts.config.heads.classifier_search_vectors == "unit")
        ),
    ),
    "other_levels": (
        "tree.layers of another number than tree.levels",
        lambda facts: len(facts.config.tree.layers) != len(facts.config.tree.levels),
    ),
    "clusters_only": (
        "tree.losses = 'clusters'",
        lambda facts: facts.config.has_tree and facts.config.tree.losses == "clusters",
    ),
    "one_sided": (
        "predict.fusion = 0 or 1",
        lambda facts: not facts.config.predict.choose_fusion and facts.config.predict.fusion in (0, 1),
    ),
    "nothing_learns": (
        "nothing else that learns",
        lambda facts: (
            not (facts.config.heads.classifier or facts.config.heads.projection or facts.config.loss.learn_temperature)
        ),
    ),
    "other_network": ("settings of the network that differ between stages", lambda facts: _other_settings(facts)),
    "last_stage": ("the last stage", lambda facts: facts.is_last),
    "stages": ("several stages", lambda facts: facts.num_stages > 1),
    "processes": ("several processes", lambda facts: facts.num_processes > 1),
    "no_label_texts": ("labels without texts", lambda facts: not facts.has_label_texts),
    "no_cpu": ("another device than cpu", lambda facts: facts.device != "cpu"),
    "no_folder": ("no model folder (--out)", lambda facts: not facts.has_folder),
}


@dataclass(frozen=True)
class Rule:
    """A refused combination."""

    when: Mapping[str, Condition]  # the circumstances
    never: Mapping[str, Condition]  # the conflicts
    reason: str  # what must hold, and why
    remedy: str

    def conflict(self, facts: Facts) -> str | None:
        """The first conflict of a recipe, or None."""

        def holds(name: str, condition: Condition) -> bool:
            is_known = facts.encoder is not None or not name.startswith("encoder_can.")
            return is_known and condition.holds(facts.value(name))

        if not all(holds(*circumstance) for circumstance in self.when.items()):
            return None
        return next((_found(name, facts) for name, condition in self.never.items() if holds(name, condition)), None)


_NO_TREE = "or set tree.levels=[]"
RULES = (
    Rule(
        {"heads.dual": OFF},
        {"heads.classifier": OFF},
        "a recipe must have heads.dual or heads.classifier, as there is nothing to score without them",
        "switch one on",
    ),
    Rule(
        {"tree": YES},
        {
            "heads.dual": ON,
            "heads.classifier": OFF,
            "predict.index": _STORED,
            "predict.rank": is_("decision-tree"),
        },
        "a label tree is its own index and finds labels by the classifier's probabilities",
        f"change that, {_NO_TREE}",
    ),
    Rule(
        {"tree": YES},
        {"other_search": YES},
        "a label tree multiplies probabilities, so that classifiers must be searched as they are trained",
        "set heads.classifier_search_vectors to 'unit' with heads.classifier_normalised = true, else to 'plain'",
    ),
    Rule(
        {"chosen_labels": YES},
        {"pool.labels": is_("all"), "pool.hard_negatives": IS_SET, "pool.try_hard_negatives": IS_SET},
        "the beam of a label tree, or a batch of labels, chooses the labels of a step",
        "set pool.labels='picked', pool.hard_negatives=0 and pool.try_hard_negatives=0, or tree.levels=[] and other "
        "batches",
    ),
    Rule(
        {"tree": YES, "tree.layers": is_not([])},
        {"encoder_can.has_layers": OFF, "other_levels": YES},
        "tree.layers must be one list per level of an encoder that has layers",
        "set tree.layers=[], or as many lists as levels",
    ),
    Rule(
        {"last_stage": YES},
        {"train.surrogate": IS_SET, "clusters_only": YES},
        "the last stage must learn the labels themselves, not clusters of them",
        "let another stage follow, or leave that out",
    ),
    Rule(
        {"train.surrogate": IS_SET},
        {"heads.dual": ON, "heads.classifier": OFF, "augment.mixup": is_("labels")},
        "clusters in place of labels (train.surrogate) have no texts: only a classifier learns them",
        "set heads.classifier=true, heads.dual=false and augment.mixup='none' in this stage",
    ),
    Rule(
        {"stages": YES},
        {
            "train.decay_epochs": IS_SET,
            "augment.method": is_("auto"),
            "pool.try_hard_negatives": IS_SET,
        },
        "trials and a decay phase need a recipe of one stage",
        "leave that out",
    ),
    Rule(
        {"stages": YES},
        {"other_network": YES},
        "the network continues from stage to stage, so that its settings must be the same in all stages",
        "set it outside of [[stages]]",
    ),
    Rule(
        {"last_stage": YES, "predict.rank": is_("decision-tree")},
        {
            "train.validation": is_(0),
            "train.decay_epochs": IS_SET,
            "heads.dual": OFF,
            "heads.classifier": OFF,
            "one_sided": YES,
        },
        "predict.rank = 'decision-tree' combines the scores of two heads, and is fitted to the final scores of "
        "held-out texts",
        "change that or set predict.rank='sum'",
    ),
    Rule(
        {"train.freeze_encoder": ON},
        {"nothing_learns": YES},
        "a frozen encoder (train.freeze_encoder) needs a classifier, a projection or a temperature that learns",
        "switch heads.classifier or heads.projection on, or leave the encoder free",
    ),
    Rule(
        {"parts": YES},
        {"encoder_can.has_table": OFF},
        "parts of classifiers are made of the encoder's word vectors (heads.classifier_parts)",
        "set encoder.kind='bag' or heads.classifier_parts=['free']",
    ),
    Rule(
        {"separate_encoders": YES},
        {"encoder_can.has_twin": OFF},
        "an encoder of the classifier's own (heads.shared_encoder = false) needs an encoder that can make a second one",
        "set encoder.kind='bag' or heads.shared_encoder=true",
    ),
    Rule(
        {"encoder_can.needs_whole_batch": ON},
        {"processes": YES, "train.chunk": IS_SET},
        "BatchNorm must see all texts of a step at once",
        "train on one process with train.chunk=0",
    ),
    Rule(
        {"no_label_texts": YES},
        {"parts": YES, "augment.method": _BY_NAME, "augment.mixup": is_("labels")},
        "settings that read label texts need labels that have some",
        "give labels texts, or leave that out",
    ),
    Rule(
        {"train.table_storage": is_("file")},
        {"no_cpu": YES, "no_folder": YES},
        "tables in files (train.table_storage = 'file') need the device cpu and a model folder",
        "train with --out and --device cpu",
    ),
)


def _other_settings(facts: Facts) -> list[str]:
    """The settings of the network that a stage has otherwise than the last one."""
    can = facts.encoder
    has_staged_dropout = can is None or can.has_staged_dropout
    return [
        f"{section}.{key} = {_toml(value)}"
        for section, own in facts.config
        if isinstance(own, Section) and facts.last is not None
        for key, value in own
        if value != getattr(getattr(facts.last, section), key)
        and is_of_network(section, key, has_staged_dropout=has_staged_dropout)
    ]


def check(facts: Facts) -> None:
    """Refuse a recipe that breaks a rule."""
    for rule in RULES:
        found = rule.conflict(facts)
        if found is not None:
            raise ConfigError(f"{rule.reason}, but this run has {found}; {rule.remedy}")


def check_rules(stages: Mapping[str, Config], **run: Any) -> None:
    """Refuse a recipe any of whose stages breaks a rule; ``run`` are further `Facts`."""
    *_, last = stages.values()
    for name, config in stages.items():
        check(Facts(config, is_last=config is last, num_stages=len(stages), stage=name, last=last, **run))


def rules_markdown() -> str:
    """The table of rules as Markdown."""
    lines = ["| with | not with | because | remedy |", "|---|---|---|---|"]
    for rule in RULES:
        when, never = (
            ", ".join(_text_of(name, condition) for name, condition in part.items()) for part in (rule.when, rule.never)
        )
        lines.append(f"| {when} | {never} | {rule.reason} | {rule.remedy} |")
    return "\n".join(lines) + "\n"


_CAPABILITIES = {
    "has_table": "word vectors",
    "has_layers": "layers",
    "has_twin": "a twin for the classifier",
    "needs_whole_batch": "BatchNorm",
}


def _text_of(name: str, condition: Condition) -> str:
    section, dot, key = name.partition(".")
    if not dot:
        return _FACTS[name][0]
    if section == "encoder_can":
        return f"an encoder {'with' if condition is ON else 'without'} {_CAPABILITIES[key]}"
    return f"`{name}` {condition.text}"


def _found(name: str, facts: Facts) -> str:
    section, dot, key = name.partition(".")
    if name == "processes":
        return f"{facts.num_processes} processes"
    if name == "other_network":
        return f"{facts.value(name)[0]} in the stage {facts.stage!r} but not in the last"
    if not dot:
        return _FACTS[name][0]
    if section == "encoder_can":
        return f"encoder.kind = {facts.config.encoder.kind!r}, an encoder without {_CAPABILITIES[key]}"
    return f"{name} = {_toml(facts.value(name))}"


if __name__ == "__main__":
    sys.stdout.write(rules_markdown())
