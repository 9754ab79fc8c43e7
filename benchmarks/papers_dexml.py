"""The tables of DEXML (arXiv 2310.10636)."""

from __future__ import annotations

from papers_rows import Row, Table, claims

DEXML = (
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
        claims("""
            decoupled softmax has the best P@1: decoupled softmax > softmax | P@1
            decoupled softmax is ahead of soft top-5 at 1: decoupled softmax > soft top-5 | P@1
            soft top-5 has the best P@5: soft top-5 > decoupled softmax | P@5
            soft top-100 has the best R@100: soft top-100 > decoupled softmax | R@100
            soft top-100 ruins P@1: softmax > soft top-100 | P@1
            BCE fails: softmax > BCE | P@1
        """),
        "EURLex-4K",
        ("P@1", "P@5", "R@100"),
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
        claims("""
            mined negatives help: 1,000 > in-batch | P@1
            more of them help: 4,000 > 1,000 | P@1
            all labels are better: all > 4,000 | P@1
        """),
        "LF-Wikipedia-500K",
        ("P@1", "P@5"),
        ("pool", "steps", "CPU s"),
    ),
)
