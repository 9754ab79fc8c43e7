"""The tables and figures of the works as data: what is trained for each row, what the paper prints, what it claims.

A row is a recipe with settings. All rows are sized for a CPU by ``CPU`` and use the bag (or inception) encoder; the
recipes have the papers' own settings. ``paper`` has the paper's figures in ``Table.paper_columns`` on
``Table.paper_set``. An ordering is one claim: a row is ahead of another in a metric.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Settings = tuple[str, ...]

_CLUSTERS = ("stages.surrogate.train.surrogate=1024", "encoder.dim=128", "stages.extreme.pool.hard_negatives=3")
_SHORT_TEXTS = (
    "encoder.dim=128",
    "encoder.max_length=16",
    "encoder.dropout=0.1",
    "encoder.layer_dropout=0.1",
    "heads.dropout=0.2",
    "train.epochs=8",
)
# What makes the papers' settings small; recipes that are not here have a [bag] section of their own.
CPU: dict[str, Settings] = {
    "astec": (*_CLUSTERS, "train.epochs=8"),
    "decaf": (*_CLUSTERS, "train.epochs=6"),
    "eclare": (*_CLUSTERS, "train.epochs=6"),
    "inceptionxml": _SHORT_TEXTS,
    "inceptionxml-lf": _SHORT_TEXTS,
    "siamesexml": (
        "stages.dual.train.batch_size=512",
        "stages.dual.train.epochs=15",
        "stages.classifier.train.epochs=5",
        "stages.classifier.pool.hard_negatives=5",
    ),
}


@dataclass(frozen=True)
class Row:
    """One row: a recipe with settings, or one head of it."""

    name: str
    recipe: str
    settings: Settings = ()
    mode: str = ""  # the head that predicts; empty for the recipe's own choice
    paper: tuple[float, ...] = ()  # the paper's figures
    equal_steps: bool = False  # with label texts as points: as many steps as without, by fewer epochs
    encoder_of: str = ""  # a recipe whose trained encoder this row starts from


@dataclass(frozen=True)
class Ordering:
    """A claim of a paper: one row is ahead of another."""

    claim: str
    metric: str
    ahead: str
    behind: str


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
    orderings: tuple[Ordering, ...] = ()
    paper_set: str = ""
    paper_columns: tuple[str, ...] = ()
    facts: tuple[str, ...] = field(default=("steps", "CPU s"))  # of a run, before the metrics


GANDALF = "augment.method=gandalf"
_FOUR = ("P@1", "P@5", "PSP@1", "PSP@5")


def _points(recipe: str, variants: dict[str, tuple[Settings, tuple[float, ...]]]) -> tuple[Row, ...]:
    return tuple(Row(name, recipe, settings, paper=paper) for name, (settings, paper) in variants.items())


def _systems() -> tuple[Row, ...]:
    """Table 1.3: each system alone, with label texts at equal steps, and at equal epochs."""
    figures = {
        "siamesexml": ((41.42, 21.21, 35.80, 46.19), ()),
        "astec": ((37.12, 18.24, 29.22, 39.49), (43.95, 21.39, 37.40, 48.31)),
        "decaf": ((38.40, 18.65, 30.85, 41.42), (42.43, 20.90, 35.22, 47.61)),
        "eclare": ((40.46, 19.63, 33.18, 44.10), (42.51, 20.81, 35.72, 47.46)),
        "inceptionxml": ((36.79, 17.95, 28.50, 38.79), (44.67, 21.50, 37.98, 48.93)),
        "inceptionxml-lf": ((40.74, 19.57, 34.52, 44.13), (43.84, 21.30, 38.22, 49.03)),
        "ngame + renee": ((46.05, 22.04, 38.47, 50.33), (45.86, 21.79, 40.49, 50.96)),
    }
    rows = []
    for name, (plain, with_labels) in figures.items():
        recipe, encoder = ("renee", "ngame") if name == "ngame + renee" else (name, "")
        rows.append(Row(name, recipe, paper=plain, encoder_of=encoder))
        if with_labels:
            gandalf = Row(f"{name} + Gandalf", recipe, (GANDALF,), paper=with_labels, encoder_of=encoder)
            equal = Row(f"{name} + Gandalf, equal steps", recipe, (GANDALF,), equal_steps=True, encoder_of=encoder)
            rows += [equal, gandalf]
    return tuple(rows)


def _gains(names: tuple[str, ...], metrics: tuple[str, ...] = ("P@1", "PSP@1")) -> tuple[Ordering, ...]:
    return tuple(
        Ordering(f"Gandalf helps {name}, at equal steps", metric, f"{name} + Gandalf, equal steps", name)
        for name in names
        for metric in metrics
    )


_SC = ("loss.dual=supcon", "loss.classifier=supcon")
_BCE = "loss.classifier_bce=1.0"
_LOSS_PAIRS: dict[str, tuple[Settings, tuple[tuple[float, ...], ...]]] = {
    "SupCon / SupCon": (
        _SC,
        ((53.41, 43.57, 32.54, 38.20), (49.35, 39.23, 27.78, 32.86), (46.90, 38.62, 31.23, 35.28)),
    ),
    "SupCon / SupCon + BCE": (
        (*_SC, _BCE),
        ((54.86, 44.61, 28.05, 35.05), (51.08, 40.78, 28.64, 34.00), (53.48, 42.76, 26.24, 32.81)),
    ),
    "decoupled / BCE": (
        ("loss.classifier=bce",),
        ((55.12, 44.80, 31.72, 37.28), (50.83, 40.61, 27.14, 33.66), (54.69, 42.81, 30.74, 36.48)),
    ),
    "decoupled / decoupled": (
        (),
        ((56.73, 45.19, 34.03, 39.54), (52.52, 42.02, 29.78, 35.06), (43.67, 36.85, 32.68, 37.07)),
    ),
    "decoupled / decoupled + BCE": (
        (_BCE,),
        ((57.41, 45.89, 30.10, 36.78), (52.51, 42.00, 29.82, 35.08), (55.56, 44.10, 29.15, 35.49)),
    ),
}


def _by_head(name: str, settings: Settings, figures: tuple[tuple[float, ...], ...]) -> list[Row]:
    heads = ("", ", dual head", ", classifier head")
    modes = ("both", "dual", "classifier")
    return [
        Row(name + head, "unidec", settings, mode, figure)
        for head, mode, figure in zip(heads, modes, figures, strict=True)
    ]


_LF131K = "LF-AmazonTitles-131K"
_LF13M = "LF-AmazonTitles-1.3M"
_ONE_WAY = "loss.text_to_label=1.0"
_ALL = ("pool.labels=all", "pool.hard_negatives=0", "pool.batches=random")
_EURLEX = ("P@1", "P@5", "R@100")

_TABLES = (
    Table(
        "thesis-1.2",
        "Training points of label texts (InceptionXML): D train texts, Z label texts, Z' label texts with one label",
        _points(
            "inceptionxml",
            {
                "D": ((), (35.62, 17.35, 27.53, 37.50)),
                "Z": ((GANDALF, "augment.points=labels"), (29.68, 16.04, 28.76, 38.27)),
                "D u Z": ((GANDALF,), (43.52, 20.92, 36.96, 47.64)),
                "U(D u Z, N)": ((GANDALF, "augment.points=uniform"), (38.46, 18.52, 32.29, 41.59)),
                "D u Z'": (("augment.method=one-hot",), (37.59, 18.18, 30.75, 40.06)),
                "D u Z, GLaS": (("augment.method=glas",), (42.80, 20.49, 37.01, 46.73)),
            },
        ),
        (*_FOUR, "coverage@1", "coverage@3", "coverage@5"),  # and table 1.4
        (
            Ordering("label texts help at as many points", "P@1", "U(D u Z, N)", "D"),
            Ordering("label texts help at as many points", "PSP@5", "U(D u Z, N)", "D"),
            Ordering("label texts alone are ahead on rare labels", "PSP@5", "Z", "D"),
            Ordering("soft targets are ahead of one-hot ones", "P@1", "D u Z", "D u Z'"),
            Ordering("Gandalf is ahead of GLaS", "P@1", "D u Z", "D u Z, GLaS"),
            Ordering("more labels are predicted at all (table 1.4)", "coverage@5", "D u Z", "D"),
        ),
        _LF131K,
        _FOUR,
    ),
    Table(
        "thesis-1.3",
        "Systems with and without Gandalf; equal steps: fewer epochs over more points",
        _systems(),
        orderings=(
            *_gains(("astec", "decaf", "eclare", "inceptionxml", "inceptionxml-lf")),
            Ordering(
                "Gandalf helps rare labels of Renee, at equal steps",
                "PSP@1",
                "ngame + renee + Gandalf, equal steps",
                "ngame + renee",
            ),
            Ordering("label words in classifiers help", "P@1", "decaf", "astec"),
            Ordering("the label graph helps", "P@1", "eclare", "decaf"),
            Ordering("label words and graph help InceptionXML", "P@1", "inceptionxml-lf", "inceptionxml"),
            Ordering("SiameseXML is ahead of Astec", "P@1", "siamesexml", "astec"),
            Ordering("Astec with Gandalf is ahead of SiameseXML", "P@1", "astec + Gandalf", "siamesexml"),
            Ordering("Renee on NGAME's encoder is ahead of Astec", "P@1", "ngame + renee", "astec"),
        ),
        paper_set=_LF131K,
        paper_columns=_FOUR,
    ),
    Table(
        "thesis-1.6",
        "Conventional augmentation of texts beside Gandalf (InceptionXML)",
        _points(
            "inceptionxml",
            {
                "plain": ((), (35.62, 17.35, 27.53, 37.50)),
                "synonyms (wordllama)": (("copies=synonyms",), (35.07, 17.08, 27.20, 36.77)),
                "MixUp": (("augment.mixup=texts",), (35.63, 17.37, 27.55, 37.63)),
                "Label-MixUp": (("augment.mixup=labels",), (37.25, 17.98, 29.25, 39.09)),
                "Gandalf": ((GANDALF,), (43.52, 20.92, 36.96, 47.64)),
            },
        ),
        orderings=(
            Ordering("Label-MixUp helps", "P@1", "Label-MixUp", "plain"),
            Ordering("synonyms do not help", "P@1", "plain", "synonyms (wordllama)"),
            Ordering("Gandalf is ahead of Label-MixUp", "P@1", "Gandalf", "Label-MixUp"),
        ),
        paper_set=_LF131K,
        paper_columns=_FOUR,
    ),
    Table(
        "thesis-1.7",
        "The label graph and delta",
        (
            Row("inceptionxml", "inceptionxml", paper=(35.62, 17.35, 27.53, 37.50)),
            Row("+ Gandalf, co-occurrence", "inceptionxml", (GANDALF,), paper=(43.71, 21.14, 37.25, 47.89)),
            Row(
                "+ Gandalf, random walks",
                "inceptionxml",
                ("augment.method=random-walk",),
                paper=(43.52, 20.92, 36.96, 47.64),
            ),
            Row("inceptionxml-lf", "inceptionxml-lf", paper=(40.74, 19.57, 34.52, 44.13)),
            Row(
                "lf + Gandalf, delta 0",
                "inceptionxml-lf",
                (GANDALF, "augment.delta=0.0"),
                paper=(41.71, 20.14, 36.94, 46.64),
            ),
            Row("lf + Gandalf, delta 0.1", "inceptionxml-lf", (GANDALF,), paper=(42.09, 20.45, 37.09, 47.04)),
            Row(
                "lf + Gandalf, delta 0.2",
                "inceptionxml-lf",
                (GANDALF, "augment.delta=0.2"),
                paper=(41.73, 20.18, 37.01, 46.67),
            ),
        ),
        orderings=(
            Ordering("co-occurrence is ahead of walks", "P@1", "+ Gandalf, co-occurrence", "+ Gandalf, random walks"),
            Ordering("delta 0.1 is ahead of 0", "P@1", "lf + Gandalf, delta 0.1", "lf + Gandalf, delta 0"),
            Ordering("delta 0.1 is ahead of 0.2", "P@1", "lf + Gandalf, delta 0.1", "lf + Gandalf, delta 0.2"),
        ),
        paper_set=_LF131K,
        paper_columns=_FOUR,
    ),
    Table(
        "thesis-fig-1.3",
        "Contribution to P@5 by label frequency, from the most frequent fifth of the pairs to the rarest",
        (Row("inceptionxml", "inceptionxml"), Row("inceptionxml + Gandalf", "inceptionxml", (GANDALF,))),
        ("P@5", "bin 1", "bin 2", "bin 3", "bin 4", "bin 5"),
        tuple(
            Ordering(f"Gandalf helps {what}", f"bin {number}", "inceptionxml + Gandalf", "inceptionxml")
            for number, what in ((1, "frequent labels"), (3, "the middle"), (5, "rare labels"))
        ),
    ),
    Table(
        "thesis-fig-1.4ab",
        "P@1 and PSP@5 against steps, with and without Gandalf",
        tuple(
            Row(f"{name}, {epochs} epochs", "inceptionxml", (*settings, f"train.epochs={epochs}"))
            for name, settings in (("D", ()), ("D u Z", (GANDALF,)))
            for epochs in (2, 4, 8)
        ),
        ("P@1", "PSP@5"),
        (Ordering("Gandalf is ahead from the start", "P@1", "D u Z, 2 epochs", "D, 4 epochs"),),
    ),
    Table(
        "thesis-fig-1.4cd",
        "Label texts of a part of the labels, drawn at random or rare labels first",
        tuple(
            Row(
                f"{pick} {share}%",
                "inceptionxml",
                (GANDALF, f"augment.label_share={share / 100}", f"augment.pick={pick}") if share else (),
            )
            for pick in ("random", "tail-first")
            for share in (0, 25, 50, 75, 100)
            if share not in (0, 100) or pick == "random"
        ),
        ("P@1", "PSP@5"),
        (
            Ordering("more labels are better", "P@1", "random 100%", "random 25%"),
            Ordering("rare labels first are better", "P@1", "tail-first 25%", "random 25%"),
            Ordering("rare labels first are better", "PSP@5", "tail-first 25%", "random 25%"),
            Ordering("rare labels first are better", "PSP@5", "tail-first 75%", "random 75%"),
        ),
    ),
    Table(
        "unidec-2.2",
        "Dual encoders (first) and systems with classifiers",
        (
            Row("graphsage", "graphsage"),
            Row("dpr", "dpr", paper=(41.85, 20.88, 38.17, 49.45)),
            Row("ance", "ance", paper=(42.67, 20.98, 38.16, 49.03)),
            Row("ngame, dual head", "ngame", mode="dual", paper=(42.61, 20.69, 38.27, 48.71)),
            Row("depsl", "depsl", paper=(42.34, 20.87, 37.61, 47.93)),
            Row("siamesexml", "siamesexml", paper=(41.42, 21.21, 35.80, 46.19)),
            Row("cascadexml", "cascadexml"),
            Row("ngame", "ngame", mode="both", paper=(44.95, 21.20, 38.25, 48.42)),
            Row("unidec", "unidec", mode="both", paper=(44.35, 21.03, 39.23, 48.90)),
        ),
        orderings=(
            Ordering("ANCE is ahead of DPR", "P@1", "ance", "dpr"),
            Ordering("NGAME is ahead of GraphSAGE", "P@1", "ngame, dual head", "graphsage"),
            Ordering("DEPSL is ahead of NGAME's dual encoder", "P@1", "depsl", "ngame, dual head"),
            Ordering("DEPSL is ahead of ANCE", "P@1", "depsl", "ance"),
            Ordering("UniDEC is ahead of NGAME", "P@1", "unidec", "ngame"),
            Ordering("UniDEC is ahead of NGAME on rare labels", "PSP@1", "unidec", "ngame"),
            Ordering("UniDEC is ahead of SiameseXML", "P@1", "unidec", "siamesexml"),
            Ordering("UniDEC is ahead of CascadeXML on rare labels", "PSP@1", "unidec", "cascadexml"),
            Ordering("classifiers help NGAME", "P@1", "ngame", "ngame, dual head"),
        ),
        paper_set=_LF131K,
        paper_columns=_FOUR,
    ),
    Table(
        "unidec-2.3",
        "Batch, pool, memory and time",
        (
            Row("dexml, pool of 512", "dexml-mined", ("pool.hard_negatives=0",), paper=(42.15, 32.97)),
            Row(
                "dexml, pool of 4,000",
                "dexml-mined",
                ("pool.hard_negatives=8", "pool.start=0", "pool.size=4000"),
                paper=(54.01, 42.08, 28.64, 33.58),
            ),
            Row("depsl", "depsl", paper=(54.20, 43.38, 30.17, 36.25)),
            Row("renee", "renee", paper=(56.04, 45.32, 28.56, 36.14)),
            Row("unidec", "unidec", mode="both", paper=(57.41, 45.89, 30.10, 36.78)),
            Row("dexml, all labels", "dexml", paper=(58.40, 45.46, 31.36, 36.58)),
        ),
        _FOUR,
        (
            Ordering("a larger pool is better", "P@1", "dexml, pool of 4,000", "dexml, pool of 512"),
            Ordering("all labels are better", "P@1", "dexml, all labels", "dexml, pool of 4,000"),
            Ordering("DEPSL is ahead of DEXML on a small pool", "P@1", "depsl", "dexml, pool of 512"),
            Ordering("UniDEC is ahead of Renee", "P@1", "unidec", "renee"),
            Ordering("UniDEC is ahead of Renee on rare labels", "PSP@1", "unidec", "renee"),
        ),
        _LF13M,
        _FOUR,
        ("batch", "pool", "steps", "CPU s", "MB"),
    ),
    Table(
        "unidec-2.4",
        "Losses of dual encoder and classifier in UniDEC, and each head alone",
        tuple(row for name, (settings, figures) in _LOSS_PAIRS.items() for row in _by_head(name, settings, figures)),
        (*_FOUR, "R@10"),
        (
            Ordering("decoupled softmax is ahead of SupCon", "P@1", "decoupled / decoupled", "SupCon / SupCon"),
            Ordering("decoupled softmax is ahead of SupCon", "P@5", "decoupled / decoupled", "SupCon / SupCon"),
            Ordering("decoupled softmax is ahead of SupCon", "PSP@1", "decoupled / decoupled", "SupCon / SupCon"),
            Ordering(
                "the same in the dual head", "P@1", "decoupled / decoupled, dual head", "SupCon / SupCon, dual head"
            ),
            Ordering(
                "SupCon is ahead in the classifier head",
                "P@1",
                "SupCon / SupCon, classifier head",
                "decoupled / decoupled, classifier head",
            ),
            Ordering("BCE beside it raises P", "P@1", "decoupled / decoupled + BCE", "decoupled / decoupled"),
            Ordering("and lowers PSP", "PSP@1", "decoupled / decoupled", "decoupled / decoupled + BCE"),
            Ordering("BCE alone is worse than decoupled softmax", "P@1", "decoupled / decoupled", "decoupled / BCE"),
            Ordering("both heads beat the dual head", "P@1", "decoupled / decoupled", "decoupled / decoupled, dual head"),
            Ordering(
                "both heads beat the classifier head",
                "P@1",
                "decoupled / decoupled",
                "decoupled / decoupled, classifier head",
            ),
        ),
        _LF13M,
        _FOUR,
    ),
    Table(
        "unidec-2.5",
        "Mined hard negatives in UniDEC, and each head alone; further rows of ours",
        (
            *_by_head(
                "with", (), ((57.41, 45.89, 30.10, 36.78), (52.51, 42.00, 29.82, 35.08), (55.56, 44.10, 29.15, 35.49))
            ),
            *_by_head(
                "without",
                ("pool.hard_negatives=0",),
                ((56.51, 44.94, 31.90, 38.21), (49.71, 39.37, 30.40, 35.20), (53.31, 42.90, 30.41, 36.47)),
            ),
            Row("random batches", "unidec", ("pool.batches=random",), "both"),
            Row("one-way", "unidec", (_ONE_WAY,), "both"),
            Row(
                "one positive (POL) on the same pool",
                "unidec",
                ("loss.dual=one-positive", "loss.classifier=one-positive"),
                "both",
            ),
        ),
        (*_FOUR, "R@10"),
        (
            Ordering("hard negatives raise P", "P@1", "with", "without"),
            Ordering("hard negatives lower PSP", "PSP@1", "without", "with"),
            Ordering("clustered batches help", "P@1", "with", "random batches"),
            Ordering(
                "some labels are better than one (PSL, POL)", "P@1", "with", "one positive (POL) on the same pool"
            ),
            Ordering(
                "some labels are better than one (PSL, POL)", "PSP@1", "with", "one positive (POL) on the same pool"
            ),
        ),
        _LF13M,
        _FOUR,
    ),
    Table(
        "unidec-2.6",
        "The symmetric loss in DEPSL (dual head) and in UniDEC (both heads)",
        (
            Row("SupCon", "depsl", ("loss.dual=supcon",), paper=(52.22, 41.80, 29.15, 34.91)),
            Row(
                "SupCon, symmetric",
                "depsl",
                ("loss.dual=supcon", "loss.text_to_label=0.5"),
                paper=(50.62, 40.64, 30.51, 36.33),
            ),
            Row("decoupled", "depsl", paper=(54.20, 43.38, 30.17, 36.25)),
            Row("decoupled, symmetric", "depsl", ("loss.text_to_label=0.5",), paper=(53.26, 42.86, 31.90, 37.88)),
            Row("UniDEC, decoupled", "unidec", (_ONE_WAY,), "both"),
            Row("UniDEC, decoupled, symmetric", "unidec", (), "both"),
        ),
        _FOUR,
        (
            Ordering("symmetric costs P on short texts", "P@1", "decoupled", "decoupled, symmetric"),
            Ordering("and raises PSP", "PSP@1", "decoupled, symmetric", "decoupled"),
            Ordering("symmetric raises PSP with SupCon", "PSP@1", "SupCon, symmetric", "SupCon"),
            Ordering("decoupled is ahead of SupCon", "P@1", "decoupled", "SupCon"),
            Ordering("decoupled is ahead of SupCon, symmetric", "P@1", "decoupled, symmetric", "SupCon, symmetric"),
        ),
        _LF13M,
        _FOUR,
    ),
    Table(
        "unidec-2.7",
        "Sponsored search in shape: 64 numbers per vector, short texts",
        (
            Row("ngame, dual head", "ngame", ("encoder.dim=64",), "dual", (86.16, 73.07, 64.61)),
            Row("simcse", "simcse", ("encoder.dim=64",), paper=(86.08, 73.26, 65.27)),
            Row("depsl", "depsl", ("encoder.dim=64",), paper=(87.33, 74.63, 66.44)),
        ),
        ("P@1", "P@3", "P@5", "R@10"),
        (
            Ordering("DEPSL is ahead of NGAME", "P@1", "depsl", "ngame, dual head"),
            Ordering("DEPSL is ahead of SimCSE", "P@1", "depsl", "simcse"),
            Ordering("SimCSE is ahead of NGAME at 5", "P@5", "simcse", "ngame, dual head"),
        ),
        "Query2Bid-450M",
        ("P@1", "P@3", "P@5"),
    ),
    Table(
        "unidec-fig-2.2b",
        "Positives of a text in the pool, against sampled positives (beta) and hard negatives (eta)",
        tuple(
            Row(
                f"beta {beta}, eta {eta}",
                "unidec",
                (f"pool.positives={beta}", f"pool.hard_negatives={eta}", "pool.fill=false", "train.epochs=5"),
                "both",
            )
            for beta in (1, 3, 5)
            for eta in (0, 6)
        ),
        ("P@1", "PSP@1"),
        (
            Ordering("more drawn positives, more in the pool", "positives", "beta 3, eta 0", "beta 1, eta 0"),
            Ordering("hard negatives bring further positives", "positives", "beta 1, eta 6", "beta 1, eta 0"),
        ),
        facts=("positives", "pool", "CPU s"),
    ),
    Table(
        "dexml-losses",
        "Losses of a dual encoder on all labels",
        (
            Row("BCE", "dexml", ("loss.dual=bce",), paper=(0.10, 0.07, 1.84)),
            Row("softmax", "dexml", ("loss.dual=supcon",), paper=(80.05, 58.36, 92.57)),
            Row("decoupled softmax", "dexml", paper=(86.78, 60.19, 91.75)),
            Row("decoupled softmax, one drawn positive", "dexml", ("loss.dual=one-positive",)),
            Row("soft top-5", "dexml-top5", paper=(83.42, 60.95, 91.30)),
            Row("soft top-100", "dexml-top100", paper=(52.34, 37.41, 93.72)),
        ),
        ("P@1", "P@5", "R@100", "PSP@1"),
        (
            Ordering("decoupled softmax has the best P@1", "P@1", "decoupled softmax", "softmax"),
            Ordering("decoupled softmax is ahead of soft top-5 at 1", "P@1", "decoupled softmax", "soft top-5"),
            Ordering("soft top-5 has the best P@5", "P@5", "soft top-5", "decoupled softmax"),
            Ordering("soft top-100 has the best R@100", "R@100", "soft top-100", "decoupled softmax"),
            Ordering("soft top-100 ruins P@1", "P@1", "softmax", "soft top-100"),
            Ordering("BCE fails", "P@1", "softmax", "BCE"),
        ),
        "EURLex-4K",
        _EURLEX,
    ),
    Table(
        "dexml-3",
        "Labels in a step: one loss, batches and epochs; the pool is filled with mined negatives",
        (
            Row("in-batch", "dexml-mined", ("pool.hard_negatives=0",), paper=(77.71, 43.32)),
            Row("1,000", "dexml-mined", ("pool.hard_negatives=2", "pool.start=0", "pool.size=1000"), paper=()),
            Row(
                "4,000",
                "dexml-mined",
                ("pool.hard_negatives=16", "pool.start=0", "pool.size=4000"),
                paper=(84.77, 50.31),
            ),
            Row("all", "dexml", ("loss.dual=one-positive",), paper=(85.78, 50.53)),
        ),
        ("P@1", "P@5"),
        (
            Ordering("mined negatives help", "P@1", "1,000", "in-batch"),
            Ordering("more of them help", "P@1", "4,000", "1,000"),
            Ordering("all labels are better", "P@1", "all", "4,000"),
        ),
        "LF-Wikipedia-500K",
        ("P@1", "P@5"),
        ("pool", "steps", "CPU s"),
    ),
)
TABLES = {table.name: table for table in _TABLES}
