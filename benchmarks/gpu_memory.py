"""Memory of training on one GPU by formula, for the data sets and settings of the papers; nothing is run.

usage: python benchmarks/gpu_memory.py

Bytes, with G dense weights of a transformer of n layers of width H, texts of T tokens, B texts and P labels of a step
(C of them at once, train.chunk), L labels, D dimensions of a head, half precision inside the layers (encoder.autocast):

    weights      16 G                      float32 weights, gradients and both moments of AdamW
    activations  34 n H T min(B + P, C)    per layer and token, fused attention (Korthikanti et al., arXiv 2205.05198)
    classifiers  12 L D with adam, 8 L D with sgd, 4 L D with adagrad
    labels       12 L D                    vectors and gradients of all labels, only where pool.labels = "all" and dual

Upper bounds: every text has T tokens. Mining needs the vectors of all train texts beside that, 4 N D, for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass

GIGABYTE = 1e9
# DistilBERT: dense weights, layers, width.
WEIGHTS, LAYERS, WIDTH = 66e6, 6, 768


@dataclass(frozen=True)
class Case:
    """A recipe on a data set, with the settings of its paper."""

    recipe: str
    data: str
    num_labels: int
    tokens: int
    batch: int
    pool: int
    chunk_16: int  # train.chunk on 16 GB
    chunk_80: int  # train.chunk on 80 GB, 0 for none
    row_bytes: int  # of classifiers
    dim: int  # of classifiers or label vectors
    all_labels: bool = False

    def gigabytes(self, chunk: int) -> float:
        """Memory with so many texts or labels at once."""
        at_once = min(self.batch + self.pool, chunk or self.batch + self.pool)
        activations = 34 * LAYERS * WIDTH * self.tokens * at_once
        labels = (self.row_bytes + 12 * self.all_labels) * self.num_labels * self.dim
        return (16 * WEIGHTS + activations + labels) / GIGABYTE


CASES = [
    Case("depsl", "LF-AmazonTitles-131K", 131_073, 32, 576, 3000, 1024, 0, 0, 512),
    Case("unidec", "LF-AmazonTitles-131K", 131_073, 32, 576, 3000, 1024, 0, 12, 256),
    Case("unidec", "LF-Amazon-131K", 131_073, 128, 576, 3000, 256, 2048, 12, 256),
    Case("unidec", "LF-WikiSeeAlso-320K", 312_330, 128, 677, 3500, 256, 2048, 12, 256),
    Case("depsl", "LF-Wikipedia-500K", 501_070, 128, 221, 3000, 256, 2048, 0, 512),
    Case("unidec", "LF-AmazonTitles-1.3M", 1_305_265, 32, 1098, 3000, 1024, 0, 12, 256),
    Case("ngame", "LF-AmazonTitles-131K", 131_073, 32, 1600, 1600, 1024, 0, 12, 768),
    Case("renee", "LF-AmazonTitles-131K", 131_073, 32, 512, 0, 512, 0, 8, 768),
    Case("renee", "LF-AmazonTitles-1.3M", 1_305_265, 32, 1024, 0, 512, 0, 8, 768),
    Case("dexml", "LF-AmazonTitles-131K", 131_073, 32, 3000, 131_073, 1024, 3000, 0, 768, all_labels=True),
    Case("dexml", "LF-AmazonTitles-1.3M", 1_305_265, 32, 3000, 1_305_265, 256, 3000, 0, 768, all_labels=True),
]


def main() -> None:
    """Print the table."""
    print("| recipe | data | tokens | batch | pool | `train.chunk`, 16 GB | GB | `train.chunk`, 80 GB | GB |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for case in CASES:
        pool = "all" if case.all_labels or not case.pool else f"{case.pool:,}"
        sizes = f"{case.tokens} | {case.batch:,} | {pool}"
        small, large = (f"{chunk} | {case.gigabytes(chunk):.1f}" for chunk in (case.chunk_16, case.chunk_80))
        print(f"| `{case.recipe}` | {case.data} | {sizes} | {small} | {large} |")


if __name__ == "__main__":
    main()
