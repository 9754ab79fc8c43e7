"""The tables and figures of the works behind unidex, one command each, on any data set.

    python benchmarks/papers.py unidec-2.4 MDNSeeAlso hpo [--seeds 3] --out DIR
    python benchmarks/papers.py --list
    python benchmarks/papers.py --write docs/papers.md --out DIR

A table is printed after every finished run's result has been stored in DIR, so that it can be stopped and called again;
it continues, with more seeds or sets too. Tables share runs. DATA is a folder or hpo; FOLDER:title reads titles alone,
and FOLDER::8000 draws so many train texts.
Beside our figures (mean and standard deviation over seeds, test texts, filter pairs applied) are the paper's, and each
of its orderings is judged: it holds, does not hold, or is within noise, two standard errors over seeds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from papers_report import markdown, write_page
from papers_runs import DataSet, Store, run_row
from papers_tables import EXPERIMENTS, TABLES, needs_data, run_experiment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", metavar="TABLE", help="a table or figure; --list names them")
    parser.add_argument("data", nargs="*", metavar="DATA", help="data sets; synthetic experiments need none")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of finished runs")
    parser.add_argument("--only", default="", help="names of rows, separated by semicolons")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="section.key=value, for all rows")
    parser.add_argument("--list", action="store_true", help="print the names of all tables")
    parser.add_argument("--write", type=Path, help="rewrite the parts of a page that come from the runs")
    asked = parser.parse_args()
    store, more = Store(asked.out), tuple(asked.settings)
    if asked.list:
        for name, title in ({name: table.title for name, table in TABLES.items()} | EXPERIMENTS).items():
            print(f"{name:18} {title}")
    elif asked.write is not None:
        print(f"{asked.write}: {'rewritten' if write_page(asked.write, store) else 'as it was'}")
    elif asked.table not in TABLES.keys() | EXPERIMENTS:
        parser.error(f"TABLE must be one of {', '.join([*TABLES, *EXPERIMENTS])}, but is {asked.table}")
    elif needs_data(asked.table) and not asked.data:
        parser.error("a table needs DATA, such as hpo")
    elif asked.table in EXPERIMENTS:
        for data in map(DataSet, asked.data) if asked.data else [None]:
            print(run_experiment(asked.table, store, data))
    else:
        table, sets = TABLES[asked.table], [DataSet(source) for source in asked.data]
        wanted = [name.strip() for name in asked.only.split(";") if name.strip()]
        unknown = set(wanted) - {row.name for row in table.rows}
        if unknown:
            parser.error(f"--only must name rows of {asked.table}, but has {min(unknown)}")
        # Seeds outermost: a table that was stopped has every row before it has any twice.
        for seed in range(asked.seeds):
            for data in sets:
                for row in table.rows:
                    if not wanted or row.name in wanted:
                        run_row(row, data, seed, store, more)
        sys.stdout.write(markdown(table, [data.name for data in sets], store, more))


if __name__ == "__main__":
    main()
