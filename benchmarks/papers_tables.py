"""All tables and figures by name, and the experiments that are no rows of recipes."""

from __future__ import annotations

import papers_examples
import papers_synthetic
from papers_dexml import DEXML
from papers_runs import DataSet, Store
from papers_thesis import THESIS
from papers_unidec import UNIDEC

TABLES = {table.name: table for table in (*THESIS, *UNIDEC, *DEXML)}
EXPERIMENTS = papers_examples.EXAMPLES | papers_synthetic.EXPERIMENTS


def needs_data(name: str) -> bool:
    """Whether a table or an experiment is about a data set."""
    return name not in papers_synthetic.EXPERIMENTS


def run_experiment(name: str, store: Store, data: DataSet | None = None) -> str:
    """The table of an experiment, computed unless it is stored."""
    what = {"set": "synthetic" if data is None else data.name, "recipe": name, "settings": [], "seed": 0}
    run = store.get(**what)
    if run is None:
        table = papers_synthetic.MAKE[name]() if data is None else papers_examples.MAKE[name](data)
        run = store.add(what | {"table": table})
    return str(run["table"])
