"""The contribution of each token of a text to a score, by gradients: for encoders that are no sum over features.

Shapes: L labels, T tokens of an encoder, D dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unidex.nn.network import Network

# Labels whose gradients are computed together: each is one more copy of the text in the pass.
_LABELS_AT_ONCE = 16


def token_scores(
    network: Network, text: str, dual_LD: NDArray[np.float32] | None, classifier_LD: NDArray[np.float32] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Gradient x input: to first order, how much the score would fall without a token's vector.

    The contributions are approximate, and the rest is what is left of the score. The result is the start and the end of
    each token, -1 for one without a place, the contributions, L x T, and the rest, L.
    """
    parts = [part for part in (dual_LD, classifier_LD) if part is not None]
    scores_L: list[float] = []
    tokens_LT: list[NDArray[np.float64]] = []
    for start in range(0, len(parts[0]), _LABELS_AT_ONCE):
        block = slice(start, start + _LABELS_AT_ONCE)
        with torch.enable_grad():
            encoded_LD, inputs_LTD = network.encoder.from_embeddings(text, len(parts[0][block]))
            head_scores_L = torch.zeros(len(encoded_LD), device=encoded_LD.device)
            if network.dual is not None and dual_LD is not None:
                head_scores_L = head_scores_L + (network.dual(encoded_LD) * _tensor(dual_LD[block], encoded_LD)).sum(
                    dim=1
                )
            if network.classifier is not None and classifier_LD is not None:
                vectors = network.classifier.as_searched(network.classifier(encoded_LD))
                head_scores_L = head_scores_L + (vectors * _tensor(classifier_LD[block], encoded_LD)).sum(dim=1)
            (slopes_LTD,) = torch.autograd.grad(head_scores_L.sum(), inputs_LTD)
        scores_L += head_scores_L.tolist()
        tokens_LT.append(_numbers((slopes_LTD * inputs_LTD).sum(dim=2)))
    values_LT = np.concatenate(tokens_LT)
    starts, ends = np.array(network.encoder.token_places(text), dtype=np.int64).reshape(-1, 2).T
    rest_L = np.array(scores_L) - values_LT.sum(axis=1)
    return starts, ends, values_LT, rest_L


def _numbers(tensor: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = tensor.detach().cpu().double().numpy()
    return found


def _tensor(array: NDArray[np.float32], like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like)
