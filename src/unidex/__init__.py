"""unidex matches a text to the right few of thousands to hundreds of millions of labels.

The public names below are imported when they are first used, so that ``import unidex`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Dataset": "unidex.data.dataset",
    "Model": "unidex.model",
    "TopK": "unidex.topk",
    "UnidexClassifier": "unidex.classifier",
    "evaluate": "unidex.pipeline",
    "read": "unidex.data.formats",
    "train": "unidex.pipeline",
}
__all__ = ["Dataset", "Model", "TopK", "UnidexClassifier", "__version__", "evaluate", "read", "train"]

if TYPE_CHECKING:
    from unidex.classifier import UnidexClassifier
    from unidex.data.dataset import Dataset
    from unidex.data.formats import read
    from unidex.model import Model
    from unidex.pipeline import evaluate, train
    from unidex.topk import TopK


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unidex' has no attribute {name!r}")
    found = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found
