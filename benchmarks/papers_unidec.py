"""The tables and figures of UniDEC (arXiv 2405.03714), chapter 2 of the thesis."""

from __future__ import annotations

from papers_rows import BINS, FOUR, LF_13M, Row, Settings, Table, claims

_SC = ("loss.dual=supcon", "loss.classifier=supcon")
_BCE = "loss.classifier_bce=1.0"
_PRIOR = "predict.label_prior=0.02"
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


_ONE_WAY = "loss.text_to_label=1.0"


def _by_head(name: str, settings: Settings, figures: tuple[tuple[float, ...], ...] = ((), (), ())) -> list[Row]:
    heads = ("", ", dual head", ", classifier head")
    modes = ("both", "dual", "classifier")
    return [
        Row(name + head, "unidec", settings, mode, figure)
        for head, mode, figure in zip(heads, modes, figures, strict=True)
    ]


# One encoder, similarity, length and number of steps for all, so that rows differ in loss and labels of a step alone.
_MINILM = ("encoder.kind=transformer", "encoder.path=minilm", "encoder.max_length=16", "encoder.pooling=mean")
_STEPS = ("train.batch_size=128", "train.lr_encoder=3e-4", "train.epochs=3")
_COSINES = ("heads.dual_normalised=true", "loss.temperature=0.05")
_MINED = ("pool.start=1", "pool.refresh_every=1")
_PICKED = (*_MINED, "heads.projection=false", "heads.dropout=0", "pool.size=1024")
_NGAME = (
    *_MINILM,
    *_STEPS,
    *(f"stages.dual.{setting}" for setting in (*_MINED, "pool.cluster_growth=[1,1,1,2,2,2]")),
    "stages.classifier.pool.cluster_growth=[1,1,1,2,2,2]",
)
_UNIDEC = (
    *_MINILM,
    *_STEPS,
    *_PICKED,
    "heads.classifier_init=label-text",
    "heads.classifier_normalised=true",
    "heads.classifier_dropout=0",
    "loss.classifier_bce=0",
    "train.lr_classifier=1e-2",
)

UNIDEC = (
    Table(
        "unidec-2.2",
        "Dual encoders (first) and systems with classifiers",
        (
            Row("graphsage", "graphsage"),
            Row("dpr", "dpr", paper=(44.64, 34.83, 32.62, 36.72)),
            Row("ance", "ance", paper=(46.44, 37.59, 31.91, 37.25)),
            Row("ance, with the batch's labels", "ance", ("pool.candidates=pool",)),
            Row("ngame, dual head", "ngame", mode="dual", paper=(45.82, 35.48, 33.03, 36.80)),
            Row("depsl", "depsl", paper=(54.20, 43.38, 30.17, 36.25)),
            Row("siamesexml", "siamesexml", paper=(49.02, 38.52, 27.12, 32.52)),
            Row("cascadexml", "cascadexml"),
            Row("ngame", "ngame", mode="both", paper=(54.69, 42.80, 28.23, 34.48)),
            Row("unidec", "unidec", mode="both", paper=(57.41, 45.89, 30.10, 36.78)),
        ),
        orderings=claims("""
            ANCE is ahead of DPR: ance > dpr | P@1
            its negatives help beside those of the batch: ance, with the batch's labels > dpr | P@1
            NGAME is ahead of GraphSAGE: ngame, dual head > graphsage | P@1
            DEPSL is ahead of NGAME's dual encoder: depsl > ngame, dual head | P@1
            DEPSL is ahead of ANCE: depsl > ance | P@1
            UniDEC is ahead of NGAME: unidec > ngame | P@1
            UniDEC is ahead of NGAME on rare labels: unidec > ngame | PSP@1
            UniDEC is ahead of SiameseXML: unidec > siamesexml | P@1
            UniDEC is ahead of CascadeXML on rare labels: unidec > cascadexml | PSP@1
            classifiers help NGAME: ngame > ngame, dual head | P@1
        """),
        paper_set=LF_13M,
        paper_columns=FOUR,
    ),
    Table(
        "unidec-2.2-minilm",
        "The same with one transformer (MiniLM), at equal steps",
        (
            Row("dpr", "dpr", (*_MINILM, *_STEPS, *_COSINES)),
            Row("ance", "ance", (*_MINILM, *_STEPS, *_COSINES, *_MINED)),
            Row("ngame, dual head", "ngame", _NGAME, "dual"),
            Row("depsl", "depsl", (*_MINILM, *_STEPS, *_PICKED)),
            Row("ngame", "ngame", _NGAME, "both"),
            Row("ngame, classifier head", "ngame", _NGAME, "classifier"),
            Row("unidec", "unidec", _UNIDEC, "both"),
            Row("unidec, classifier head", "unidec", _UNIDEC, "classifier"),
        ),
        orderings=claims("""
            ANCE is ahead of DPR: ance > dpr | P@1
            DEPSL is ahead of NGAME's dual encoder: depsl > ngame, dual head | P@1
            UniDEC is ahead of NGAME: unidec > ngame | P@1
        """),
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
            Row("renee on ngame's encoder", "renee", paper=(56.04, 45.32, 28.56, 36.14), encoder_of="ngame"),
            Row("renee on random words", "renee"),
            Row("unidec", "unidec", mode="both", paper=(57.41, 45.89, 30.10, 36.78)),
            Row("dexml, all labels", "dexml", paper=(58.40, 45.46, 31.36, 36.58)),
        ),
        FOUR,
        claims("""
            a larger pool is better: dexml, pool of 4,000 > dexml, pool of 512 | P@1
            all labels are better: dexml, all labels > dexml, pool of 4,000 | P@1
            DEPSL is ahead of DEXML on a small pool: depsl > dexml, pool of 512 | P@1
            UniDEC is ahead of Renee: unidec > renee on ngame's encoder | P@1, PSP@1
            UniDEC is ahead of Renee without NGAME: unidec > renee on random words | P@1, PSP@1
        """),
        LF_13M,
        FOUR,
        ("batch", "pool", "steps", "CPU s", "MB"),
    ),
    Table(
        "unidec-2.4",
        "Losses of dual encoder and classifier in UniDEC, and each head alone",
        tuple(row for name, (settings, figures) in _LOSS_PAIRS.items() for row in _by_head(name, settings, figures)),
        (*FOUR, "R@10"),
        claims("""
            decoupled softmax is ahead of SupCon: decoupled / decoupled > SupCon / SupCon | P@1, P@5, PSP@1
            the same in the dual head: decoupled / decoupled, dual head > SupCon / SupCon, dual head | P@1
            not with classifiers: SupCon / SupCon, classifier head > decoupled / decoupled, classifier head | P@1
            BCE beside it raises P: decoupled / decoupled + BCE > decoupled / decoupled | P@1
            and lowers PSP: decoupled / decoupled > decoupled / decoupled + BCE | PSP@1
            BCE alone is worse than decoupled softmax: decoupled / decoupled > decoupled / BCE | P@1
            both heads beat the dual head: decoupled / decoupled > decoupled / decoupled, dual head | P@1
            both heads beat the classifier head: decoupled / decoupled > decoupled / decoupled, classifier head | P@1
        """),
        LF_13M,
        FOUR,
    ),
    Table(
        "unidec-supcon",
        "SupCon and decoupled softmax by label frequency (ours): where each is ahead in UniDEC, and a label prior",
        (
            *_by_head("SupCon / SupCon", _SC),
            *_by_head("decoupled / decoupled", ()),
            Row("SupCon / SupCon, prior 0.02", "unidec", (*_SC, _PRIOR), "both"),
            Row("decoupled / decoupled, prior 0.02", "unidec", (_PRIOR,), "both"),
        ),
        ("P@1", "PSP@1", "P@5", *BINS),
        claims("""
            SupCon is ahead: SupCon / SupCon > decoupled / decoupled | P@1
            SupCon is ahead on frequent labels: SupCon / SupCon > decoupled / decoupled | bin 1
            decoupled softmax is ahead on rare ones: decoupled / decoupled > SupCon / SupCon | bin 5, PSP@1
            the same in the dual head: SupCon / SupCon, dual head > decoupled / decoupled, dual head | bin 1
            and with classifiers: SupCon / SupCon, classifier head > decoupled / decoupled, classifier head | bin 1
            a prior gives decoupled softmax as much: decoupled / decoupled, prior 0.02 > SupCon / SupCon | bin 1, P@1
            which SupCon has already: SupCon / SupCon, prior 0.02 > SupCon / SupCon | P@1
        """),
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
        (*FOUR, "R@10"),
        claims("""
            hard negatives raise P: with > without | P@1
            hard negatives lower PSP: without > with | PSP@1
            clustered batches help: with > random batches | P@1
            some labels are better than one (PSL, POL): with > one positive (POL) on the same pool | P@1, PSP@1
        """),
        LF_13M,
        FOUR,
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
        FOUR,
        claims("""
            symmetric costs P on short texts: decoupled > decoupled, symmetric | P@1
            and raises PSP: decoupled, symmetric > decoupled | PSP@1
            symmetric raises PSP with SupCon: SupCon, symmetric > SupCon | PSP@1
            decoupled is ahead of SupCon: decoupled > SupCon | P@1
            decoupled is ahead of SupCon, symmetric: decoupled, symmetric > SupCon, symmetric | P@1
        """),
        LF_13M,
        FOUR,
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
        claims("""
            DEPSL is ahead of NGAME: depsl > ngame, dual head | P@1
            DEPSL is ahead of SimCSE: depsl > simcse | P@1
            SimCSE is ahead of NGAME at 5: simcse > ngame, dual head | P@5
        """),
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
        claims("""
            more drawn positives, more in the pool: beta 3, eta 0 > beta 1, eta 0 | positives
            hard negatives bring further positives: beta 1, eta 6 > beta 1, eta 0 | positives
        """),
        facts=("positives", "pool", "CPU s"),
    ),
)
