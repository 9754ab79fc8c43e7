"""CPU seconds of the peers' TF-IDF features: their script as it is, with its vectoriser timed.

Run: python benchmarks/peers_tfidf.py SCRIPT DATADIR, with a Python that has scikit-learn; unidex is not needed.
The last line printed is a JSON object: CPU seconds of the features of the train texts (vocabulary included) and of the
test texts. Reading, label matrices and the files that the script writes are not in them.
"""

import json
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from sklearn.feature_extraction.text import TfidfVectorizer


def timed(method: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """The method, which adds the CPU seconds of each call to ``spent``."""

    def call(*args: Any, **options: Any) -> Any:
        started = time.process_time()
        try:
            return method(*args, **options)
        finally:
            spent.append(time.process_time() - started)

    return call


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: peers_tfidf.py SCRIPT DATADIR")
    script = sys.argv[1]
    train: list[float] = []
    test: list[float] = []
    sys.argv = sys.argv[1:]
    with (
        mock.patch.object(TfidfVectorizer, "fit_transform", timed(TfidfVectorizer.fit_transform, train)),
        mock.patch.object(TfidfVectorizer, "transform", timed(TfidfVectorizer.transform, test)),
    ):
        runpy.run_path(script, run_name="__main__")
    print(json.dumps({"train_cpu_s": sum(train), "test_cpu_s": sum(test)}))


if __name__ == "__main__":
    main()
