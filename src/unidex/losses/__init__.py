"""Losses over a pool of labels: pure functions of scores and targets that give a value and its gradient."""

from unidex.losses.bce import bce
from unidex.losses.gradient import Loss, LossGrad, differentiable
from unidex.losses.softmax import correct_log_q, decoupled_softmax, softmax_one_positive, supcon
from unidex.losses.symmetric import symmetric
from unidex.losses.targets import Targets, one_positive
from unidex.losses.triplet import triplet

__all__ = [
    "Loss",
    "LossGrad",
    "Targets",
    "bce",
    "correct_log_q",
    "decoupled_softmax",
    "differentiable",
    "one_positive",
    "softmax_one_positive",
    "supcon",
    "symmetric",
    "triplet",
]
