"""The sections of a recipe: every setting, its default and its meaning. The only place where a default is written.

An unknown key is an error that names the nearest known one. Where a recipe comes from is not said here.
"""

from __future__ import annotations

import difflib
from typing import Any, Literal

from pydantic import Field, ValidationError

from unidex.errors import ConfigError, quoted
from unidex.section import Section
from unidex.text_settings import Encoder as Encoder
from unidex.text_settings import Features as Features
from unidex.toml_text import toml_value
from unidex.tree_settings import Tree

LossName = Literal["decoupled-softmax", "supcon", "one-positive", "soft-top-k", "triplet", "contrastive", "bce"]


class Heads(Section):
    """What is scored: the dual encoder, the classifier, or both."""

    dual: bool = Field(True, description="score a text with the vector of the label's text")
    classifier: bool = Field(True, description="score a text with a free vector of the label")
    shared_encoder: bool = Field(
        True,
        description="both heads score vectors of one encoder; false gives the classifier an encoder of its own, with "
        "the same features (bag only)",
    )
    dim: int = Field(256, ge=1, description="dimension of each head")
    projection: bool = Field(True, description="tanh and linear layers of the paper before the scores")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the heads")
    dual_normalised: bool = Field(True, description="the dual encoder's vectors have length 1")
    classifier_dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the classifier's vectors")
    classifier_start: Literal["random", "zero", "label-text", "centroid"] = Field(
        "random",
        description="what classifiers begin from: label-text, the vectors of the labels' texts; centroid, the mean "
        "vectors of the labels' train texts; both as the encoder gives them where the classifier is switched on",
    )
    classifier_parts: list[Literal["free", "text", "graph"]] = Field(
        ["free"],
        min_length=1,
        description="what a label's classifier is made of in training: a free vector, the words of its text, those of "
        "its neighbours in the label graph of [augment] walk_* (DECAF, ECLARE; bag and inception)",
    )
    parts_joined: Literal["gates", "attention"] = Field(
        "gates",
        description="how several parts become one vector: a learned gate a number of each part (DECAF), or attention "
        "over the parts (ECLARE)",
    )
    classifier_bias: Literal["none", "zero", "log-odds"] = Field(
        "none",
        description="a number of each label that is added to its score: none; one that begins at 0; or at the log odds "
        "of the label in train, so that bce need not first push all labels down",
    )
    classifier_normalised: bool = Field(False, description="train the classifier on unit vectors, as it is searched")
    classifier_rare: float = Field(
        0.0,
        ge=0,
        description="in an encoder of the classifier's own, a feature of n train texts weighs n / (n + this), so that "
        "rare ones say little; 0 leaves them as they are",
    )
    classifier_searched: Literal["unit", "plain"] = Field(
        "unit", description="search classifiers as unit vectors, or with the lengths they were trained to"
    )


class Loss(Section):
    """What is minimised."""

    dual: LossName = Field("decoupled-softmax", description="loss of the dual encoder")
    classifier: LossName = Field("decoupled-softmax", description="loss of the classifier")
    classifier_bce: float = Field(0.0, ge=0, description="weight of an additional BCE on the classifier's scores")
    text_to_label: float = Field(0.5, ge=0, le=1, description="1 - weight of the label-to-text direction; 1 is one-way")
    dual_weight: float = Field(0.5, ge=0, le=1, description="weight of the dual encoder's loss beside the classifier's")
    temperature: float = Field(1 / 18, gt=0, description="scores are divided by this in the loss")
    classifier_temperature: float = Field(0.0, ge=0, description="the same of the classifier's loss; 0 for the same")
    learn_temperature: bool = Field(False, description="learn the temperatures, from the one above")
    log_q: float = Field(
        0.0,
        ge=0,
        le=1,
        description="how much of log q, how often a label enters a pool, is taken off its scores; 0 to 1",
    )
    margin: float = Field(0.3, ge=0, description="margin of the triplet loss")
    others: Literal["ignored", "negatives"] = Field(
        "ignored", description="one-positive: what the positives of a text are that were not drawn"
    )
    drawn_positives: int = Field(
        0, ge=0, description="triplet, contrastive: positives of a text drawn in each step; 0 for all in the pool"
    )
    hardest_positives: int = Field(
        0, ge=0, description="triplet: positives of a text that count, the lowest scores first; 0 for all"
    )
    hardest_negatives: int = Field(
        10, ge=1, description="triplet, contrastive: negatives of a text that count, the highest scores first"
    )
    contrastive_c: float = Field(0.9, gt=0, lt=1, description="contrastive: probability of a pair whose score is 1")
    contrastive_d: float = Field(1.5, gt=0, description="contrastive: how fast it falls with the score")
    contrastive_least: float = Field(
        0.0, ge=0, description="contrastive: terms of negatives that are smaller than this are dropped"
    )
    bce: Literal["mean", "sum"] = Field("mean", description="bce: mean over pairs, or sum over the labels of a text")
    k: int = Field(5, ge=0, description="soft-top-k: how many labels are to stand out; 0 for a text's positives")
    alpha: float = Field(2.0, gt=0, description="soft-top-k: how sharply")


class Pool(Section):
    """The labels of a step."""

    labels: Literal["picked", "all"] = Field("picked", description="a pool picked for the batch, or all labels")
    positives: int = Field(3, ge=1, description="labels drawn for each text (beta)")
    hard_negatives: int = Field(6, ge=0, description="mined labels drawn for each text (eta)")
    try_hard_negatives: int = Field(
        0, ge=0, description="try on the validation split whether so many for each text pay; not where texts are many"
    )
    size: int = Field(3000, ge=1, description="most labels in a pool")
    batches: Literal["clustered", "random", "labels"] = Field(
        "clustered",
        description="similar texts in one batch; any texts; or any labels, each with one of its texts (SiameseXML)",
    )
    start: int = Field(5, ge=0, description="epochs before batches are clustered and negatives mined")
    refresh_every: int = Field(5, ge=1, description="epochs between two rounds of clustering and mining")
    fill: bool = Field(True, description="where a pool has room left, further labels of the texts come in")
    shortlist: int = Field(
        0, ge=0, description="mined labels kept for each text, to draw from; 0 for hard_negatives x refresh_every"
    )
    cluster_growth: list[int] = Field(
        [],
        description="epochs at which clusters of texts, of one text at first, become twice as large; a batch is then "
        "made of any clusters. Empty: a cluster is a batch",
    )


class Augment(Section):
    """Further training points made from what is there (Gandalf, arXiv 2405.04545)."""

    method: Literal["none", "auto", "gandalf", "glas", "random-walk", "one-hot"] = Field(
        "none",
        description="targets of label texts as training points; none leaves them out, auto takes gandalf where it pays "
        "on the validation split, and tries it only where texts are few",
    )
    delta: float = Field(0.1, ge=0, lt=1, description="gandalf, glas: targets up to this are left out")
    most: int = Field(0, ge=0, description="most targets of a label text, the highest first; 0 for all")
    self_label: bool = Field(True, description="a label text has its own label as a positive, with target 1")
    points: Literal["union", "labels", "uniform"] = Field(
        "union", description="train on texts and label texts, on label texts alone, or on as many of both as texts"
    )
    labels: float = Field(1.0, gt=0, le=1, description="share of the labels that become points")
    pick: Literal["random", "tail-first"] = Field("random", description="which labels those are")
    walk_length: int = Field(400, ge=1, description="random-walk: hops from each label")
    walk_restart: float = Field(0.8, ge=0, le=1, description="random-walk: chance to begin anew at the label")
    walk_most: int = Field(10, ge=1, description="random-walk: labels kept, those visited most")
    walk_verbose: int = Field(500, ge=1, description="random-walk: labels of more texts than this are left out")
    mixup: Literal["none", "texts", "labels"] = Field(
        "none", description="mix the vectors of two texts and their targets, or of a text and one of its labels"
    )
    mixup_alpha: float = Field(0.2, gt=0, description="the mixing weight is drawn from Beta(alpha, alpha)")


class Train(Section):
    """How long and how fast."""

    epochs: int = Field(20, ge=1, description="passes over the texts")
    batch_size: int = Field(
        512, ge=0, description="texts of a step, over all processes; 0 chooses 128 to 1024 by the number of texts"
    )
    chunk: int = Field(0, ge=0, description="texts or labels encoded at once, by a gradient cache; 0 for all of a step")
    lr_encoder: float = Field(1e-4, ge=0, description="learning rate of the transformer, or of the bag's vectors")
    lr_heads: float = Field(2e-4, ge=0, description="learning rate of heads and residual layers")
    lr_classifier: float = Field(1e-3, ge=0, description="learning rate of the classifiers")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay of dense matrices")
    rows: Literal["adam", "adagrad", "sgd"] = Field("adam", description="optimiser of row tables")
    freeze_encoder: bool = Field(
        False,
        description="leave the encoder as it is: its vectors are made once, without dropout, and heads and classifiers "
        "are trained on them",
    )
    surrogate: int = Field(
        0,
        ge=0,
        description="in a stage that another follows: balanced clusters of labels, so many, are learned in place of "
        "the labels, by the classifier; 0 for the labels",
    )
    schedule: Literal["cosine", "linear", "constant", "one-cycle"] = Field(
        "cosine", description="how learning rates fall; one-cycle: they also rise by a cosine, from a tenth"
    )
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps in which learning rates rise")
    tables: Literal["memory", "file"] = Field("memory", description="where row tables live while training")
    validation: float = Field(0.0, ge=0, lt=1, description="share of train kept for validation; 0 for none")
    falling_epochs: int = Field(
        0,
        ge=0,
        description="epochs after the others, on all train texts, in which learning rates fall to 0; before them rates "
        "stay, and what is chosen on the validation split is chosen there, so that nothing is trained twice",
    )
    rehearse: int = Field(
        0,
        ge=0,
        description="with at most so many train texts, let learning rates fall first without the texts kept back, then "
        "as they are to fall, so that probabilities are fitted to scores such as the model will have; costs the "
        "falling epochs once more",
    )
    validate_every: int = Field(5, ge=1, description="epochs between two validations")
    patience: int = Field(0, ge=0, description="validations without gain before training stops; 0 never stops")
    least_gain: float = Field(0.0, ge=0, description="share of the best value so far that a gain must have to count")
    metric: str = Field("P@1", description="what validation looks at; several are joined by +")
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints")


class Predict(Section):
    """How the trained model is searched."""

    mode: Literal["both", "dual", "classifier"] = Field("both", description="the heads that are searched")
    fusion: float = Field(0.5, ge=0, le=1, description="weight of the dual encoder against the classifier")
    choose_fusion: bool = Field(False, description="choose the fusion weight on the validation split")
    fuse: Literal["sum", "tree"] = Field(
        "sum",
        description="how the scores of both heads become one: their weighted sum, or the best labels by that sum "
        "ranked anew by classifier + tree_weight x (dual + probability of a decision tree fitted on validation)",
    )
    tree_weight: float = Field(1.0, ge=0, description="fuse = 'tree': weight of the dual score and the probability")
    neighbours: float = Field(0.0, ge=0, description="weight of the labels of the nearest train texts; 0 for none")
    choose_neighbours: bool = Field(False, description="choose that weight on the validation split")
    num_neighbours: int = Field(32, ge=1, description="how many train texts speak for a text")
    neighbours_temperature: float = Field(0.05, gt=0, description="how far beyond the nearest the others count")
    prior: float = Field(0.0, description="this times ln(1 + number of train texts) is added to a label's score")
    choose_prior: bool = Field(False, description="choose it on the validation split")
    index: Literal["exact", "hnsw", "pq"] = Field("exact", description="how labels are searched")
    keep_texts: int = Field(
        0, ge=0, description="first characters of each train text that the model keeps to show as reasons; 0 for none"
    )


class Stage(Section):
    """A stage of training, and the settings in which it differs from the last one, by section."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9-]*$", description="what the stage is called in logs and --set")
    encoder: dict[str, Any] = Field({})
    heads: dict[str, Any] = Field({})
    loss: dict[str, Any] = Field({})
    pool: dict[str, Any] = Field({})
    tree: dict[str, Any] = Field({})
    augment: dict[str, Any] = Field({})
    train: dict[str, Any] = Field({})

    def changes(self) -> dict[str, dict[str, Any]]:
        """The settings of its own, by section."""
        return {name: value for name, value in self if isinstance(value, dict) and value}


class Config(Section):
    """A whole recipe: the settings of the model as it is in the end, and of the stages on the way to it."""

    recipe: str = Field("", description="name of the recipe this began from")
    about: str = Field("", description="what it is, and the work it follows")
    features: Features = Features()
    encoder: Encoder = Encoder()
    heads: Heads = Heads()
    loss: Loss = Loss()
    pool: Pool = Pool()
    tree: Tree = Tree()
    augment: Augment = Augment()
    train: Train = Train()
    predict: Predict = Predict()
    stages: list[Stage] = Field([], description="stages of training, one after the other; none for one stage")

    def in_stages(self) -> dict[str, Config]:
        """The recipe of each stage by its name, in their order; one without stages is itself, by the name "".

        >>> from unidex.recipe_reading import load
        >>> [(name, config.heads.classifier) for name, config in load("ngame").in_stages().items()]
        [('dual', False), ('classifier', True)]
        """
        if not self.stages:
            return {"": self}
        settings = self.model_dump(exclude={"stages"})
        return {
            stage.name: parse(merged(settings, stage.changes()), where=f"stage {stage.name}") for stage in self.stages
        }

    def as_toml(self) -> str:
        """The whole recipe as TOML."""
        lines = [
            f"{key} = {toml_value(value)}" for key, value in self if not isinstance(value, Section) and key != "stages"
        ]
        for name, section in self:
            if isinstance(section, Section):
                lines += ["", f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in section)]
        for stage in self.stages:
            lines += ["", "[[stages]]", f"name = {toml_value(stage.name)}"]
            for name, changes in stage.changes().items():
                lines += ["", f"[stages.{name}]", *(f"{key} = {toml_value(value)}" for key, value in changes.items())]
        return "\n".join(lines) + "\n"


def parse(settings: dict[str, Any], *, where: str) -> Config:
    """Settings as a checked Config; the first thing wrong is named with its section and key."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: there is no setting {path}; {_nearest(path)}") from None
        raise ConfigError(f"{where}: {path}: {first['msg']}, but is {quoted(first['input'])}") from None


def settings_with_meaning() -> list[tuple[str, Any, str]]:
    """Every setting: section.key, default, meaning."""
    found = []
    for name, section in Config():
        if isinstance(section, Section):
            for key, field in type(section).model_fields.items():
                found.append((f"{name}.{key}", getattr(section, key), field.description or ""))
    return found


def merged(settings: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Settings by section with others over them."""
    sections = {
        name: settings[name] | section
        if isinstance(section, dict) and isinstance(settings.get(name), dict)
        else section
        for name, section in over.items()
    }
    return settings | sections


def _nearest(path: str) -> str:
    known = [name for name, _, _ in settings_with_meaning()] + list(Config.model_fields)
    close = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else "unidex config RECIPE shows those that are"
