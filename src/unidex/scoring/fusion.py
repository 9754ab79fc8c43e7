"""The choice of fusion weights on held-out texts.

score(x, l) = w dual(x, l) + (1 - w) classifier(x, l) + v knn(x, l) + p ln(1 + n_l); a head alone has weight 1

The features of the candidates are computed once; each choice of (w, v, p) ranks the same candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from unidex.scoring.layout import Weights

# Never exactly 0 or 1: new labels and similar labels search each head on its own and need its vectors.
FUSIONS = (0.02, *(round(0.1 * tenth, 1) for tenth in range(1, 10)), 0.98)
KNN_WEIGHTS = (0.0, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5)
LABEL_PRIORS = (-0.02, -0.01, -0.005, 0.0, 0.005, 0.01, 0.02)
_ROUNDS = 2


def best_weights(
    value_of: Callable[[Weights], float],
    start: Weights,
    *,
    fusions: Sequence[float] = (),
    knn_weights: Sequence[float] = (),
    priors: Sequence[float] = (),
) -> Weights:
    """The weights of the highest value, found by changing one weight at a time; a tie keeps the current weights.

    >>> best_weights(lambda weights: -abs(weights.fusion - 0.3), Weights(0.5), fusions=(0.1, 0.3, 0.9))
    Weights(fusion=0.3, knn=0.0, label_prior=0.0)
    """
    choices = {"fusion": fusions, "knn": knn_weights, "label_prior": priors}
    best, highest = start, value_of(start)
    for _ in range(_ROUNDS):
        before = best
        for name, offered in choices.items():
            for number in offered:
                tried = replace(best, **{name: number})
                value = value_of(tried) if tried != best else highest
                if value > highest:
                    best, highest = tried, value
        if best == before:
            break
    return best
