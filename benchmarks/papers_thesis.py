"""The tables and figures of chapter 1 of the thesis (Gandalf, arXiv 2405.04545)."""

from __future__ import annotations

from papers_rows import BINS, FOUR, GANDALF, LF_131K, Ordering, Row, Settings, Table, claims

_FUSED = "astec, fused with centroids"  # as its authors score; the other rows have classifiers alone


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
    rows.append(Row(_FUSED, "astec", ("heads.classifier_centroid=2",)))
    return tuple(rows)


_GAINS = tuple(
    Ordering(f"Gandalf helps {name}, {what}", metric, name + added, name)
    for what, added in (("at equal steps", " + Gandalf, equal steps"), ("as many epochs", " + Gandalf"))
    for name in ("astec", "decaf", "eclare", "inceptionxml", "inceptionxml-lf", "ngame + renee")
    for metric in ("P@1", "PSP@1")
)

THESIS = (
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
        (*FOUR, "coverage@1", "coverage@3", "coverage@5"),  # and table 1.4
        claims("""
            label texts help at as many points: U(D u Z, N) > D | P@1, PSP@5
            label texts alone are ahead on rare labels: Z > D | PSP@5
            soft targets are ahead of one-hot ones: D u Z > D u Z' | P@1
            Gandalf is ahead of GLaS: D u Z > D u Z, GLaS | P@1
            more labels are predicted at all (table 1.4): D u Z > D | coverage@5
        """),
        LF_131K,
        FOUR,
    ),
    Table(
        "thesis-1.3",
        "Systems with and without Gandalf; equal steps: fewer epochs over more points",
        _systems(),
        orderings=(
            *_GAINS,
            *claims("""
                label words in classifiers help: decaf > astec | P@1
                the label graph helps: eclare > decaf | P@1
                label words and graph help InceptionXML: inceptionxml-lf > inceptionxml | P@1
                SiameseXML is ahead of Astec: siamesexml > astec | P@1
                Astec with Gandalf is ahead of SiameseXML: astec + Gandalf > siamesexml | P@1
                Renee on NGAME's encoder is ahead of Astec: ngame + renee > astec | P@1
                score fusion helps Astec: astec, fused with centroids > astec | P@1, PSP@1
            """),
        ),
        paper_set=LF_131K,
        paper_columns=FOUR,
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
        orderings=claims("""
            Label-MixUp helps: Label-MixUp > plain | P@1
            synonyms do not help: plain > synonyms (wordllama) | P@1
            Gandalf is ahead of Label-MixUp: Gandalf > Label-MixUp | P@1
        """),
        paper_set=LF_131K,
        paper_columns=FOUR,
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
        orderings=claims("""
            co-occurrence is ahead of walks: + Gandalf, co-occurrence > + Gandalf, random walks | P@1
            delta 0.1 is ahead of 0: lf + Gandalf, delta 0.1 > lf + Gandalf, delta 0 | P@1
            delta 0.1 is ahead of 0.2: lf + Gandalf, delta 0.1 > lf + Gandalf, delta 0.2 | P@1
        """),
        paper_set=LF_131K,
        paper_columns=FOUR,
    ),
    Table(
        "thesis-fig-1.3",
        "Contribution to P@5 by label frequency, from the most frequent fifth of the pairs to the rarest",
        (Row("inceptionxml", "inceptionxml"), Row("inceptionxml + Gandalf", "inceptionxml", (GANDALF,))),
        ("P@5", *BINS),
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
        claims("Gandalf is ahead from the start: D u Z, 2 epochs > D, 4 epochs | P@1, PSP@5"),
    ),
    Table(
        "thesis-fig-1.4cd",
        "Label texts of a part of the labels, drawn at random or rare labels first",
        (
            Row("0%", "inceptionxml"),
            *(
                Row(
                    f"{pick} {share}%",
                    "inceptionxml",
                    (GANDALF, f"augment.label_share={share / 100}", f"augment.pick={pick}"),
                )
                for pick in ("random", "tail-first")
                for share in (25, 50, 75)
            ),
            Row("100%", "inceptionxml", (GANDALF,)),
        ),
        ("P@1", "PSP@5"),
        claims("""
            more labels are better: 100% > random 25% | P@1
            rare labels first are better: tail-first 25% > random 25% | P@1, PSP@5
            rare labels first are better: tail-first 75% > random 75% | PSP@5
        """),
    ),
)
