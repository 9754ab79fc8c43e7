"""unidex matches a text to the right few of thousands to a hundred million labels.

The public names below are imported when they are first used, so that ``import unidex`` is quick.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Dataset": "unidex.data.dataset",
    "Model": "unidex.verbs.registered_methods",
    "Predictions": "unidex.model.predicted_labels",
    "Predictor": "unidex.verbs.predictor",
    "TopK": "unidex.topk",
    "UnidexClassifier": "unidex.sklearn",
    "evaluate": "unidex.verbs.evaluate",
    "quiet": "unidex.notebook",
    "read": "unidex.data.formats",
    "train": "unidex.verbs.train",
    "verbose": "unidex.notebook",
}
__all__ = [
    "Dataset",
    "Model",
    "Predictions",
    "Predictor",
    "TopK",
    "UnidexClassifier",
    "__version__",
    "evaluate",
    "quiet",
    "read",
    "train",
    "verbose",
]

if TYPE_CHECKING:
    from unidex.data.dataset import Dataset
    from unidex.data.formats import read
    from unidex.model.model import Model
    from unidex.model.predicted_labels import Predictions
    from unidex.notebook import quiet, verbose
    from unidex.sklearn import UnidexClassifier
    from unidex.topk import TopK
    from unidex.verbs.evaluate import evaluate
    from unidex.verbs.predictor import Predictor
    from unidex.verbs.train import train


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        hint = "; unidex.Model.load(folder) reads a model" if name.startswith("load") else ""
        raise AttributeError(f"module 'unidex' has no attribute {name!r}{hint}")
    found = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found


if "IPython" in sys.modules and (notebook := import_module("unidex.notebook")).is_notebook():
    notebook.verbose()
