"""The tables of DEXML (arXiv 2310.10636)."""

from __future__ import annotations

from papers_rows import Ordering, Row, Table

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
        (
            Ordering("decoupled softmax has the best P@1", "P@1", "decoupled softmax", "softmax"),
            Ordering("decoupled softmax is ahead of soft top-5 at 1", "P@1", "decoupled softmax", "soft top-5"),
            Ordering("soft top-5 has the best P@5", "P@5", "soft top-5", "decoupled softmax"),
            Ordering("soft top-100 has the best R@100", "R@100", "soft top-100", "decoupled softmax"),
            Ordering("soft top-100 ruins P@1", "P@1", "softmax", "soft top-100"),
            Ordering("BCE fails", "P@1", "softmax", "BCE"),
        ),
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
