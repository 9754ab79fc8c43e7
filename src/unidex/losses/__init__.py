"""Losses over a pool of labels: pure functions of scores and targets that give a value and its gradient."""

from unidex.losses.bce import BlockedBce, bce
from unidex.losses.blocked_softmax import BlockedSoftmax
from unidex.losses.blocked_topk import BlockedSoftTopk
from unidex.losses.blocks import run_blocked
from unidex.losses.contrastive import BlockedContrastive, contrastive
from unidex.losses.gradient import Loss, LossGrad, differentiable
from unidex.losses.head_loss import HeadLoss
from unidex.losses.registry import RegisteredLoss, register
from unidex.losses.soft_topk import log_soft_topk, soft_topk, soft_topk_loss, topk_thresholds
from unidex.losses.softmax import correct_log_q, decoupled_softmax, softmax_one_positive, supcon
from unidex.losses.symmetric import symmetric
from unidex.losses.targets import Targets, draw_positives, one_positive
from unidex.losses.triplet import BlockedTriplet, triplet

__all__ = [
    "BlockedBce",
    "BlockedContrastive",
    "BlockedSoftTopk",
    "BlockedSoftmax",
    "BlockedTriplet",
    "HeadLoss",
    "Loss",
    "LossGrad",
    "RegisteredLoss",
    "Targets",
    "bce",
    "contrastive",
    "correct_log_q",
    "decoupled_softmax",
    "differentiable",
    "draw_positives",
    "log_soft_topk",
    "one_positive",
    "register",
    "run_blocked",
    "soft_topk",
    "soft_topk_loss",
    "softmax_one_positive",
    "supcon",
    "symmetric",
    "topk_thresholds",
    "triplet",
]
