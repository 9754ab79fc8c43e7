"""Names that moved to one module per verb."""

from unidex.verbs.augment import augment
from unidex.verbs.calibrate import calibrate
from unidex.verbs.evaluate import evaluate
from unidex.verbs.models import load_model
from unidex.verbs.score import Scores, score_predictions, score_topk
from unidex.verbs.train import train, train_together

__all__ = [
    "Scores",
    "augment",
    "calibrate",
    "evaluate",
    "load_model",
    "score_predictions",
    "score_topk",
    "train",
    "train_together",
]
