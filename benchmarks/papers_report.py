"""The papers' tables as Markdown: our figures with their spread, the paper's beside them, and each ordering judged."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from papers_rows import Ordering, Row, Table
from papers_runs import EQUAL_STEPS, DataSet, Result, Store, settings_of, value
from papers_tables import EXPERIMENTS, TABLES

MIN_SEEDS = 3  # an ordering with fewer seeds shows its lead and is not judged
HOLDS, FAILS, NOISE = "holds", "does not hold", "within noise"
_PART = re.compile(r"(<!-- papers: (\S+?)((?: \S+)*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(table: Table, names: list[str], store: Store, more: tuple[str, ...] = ()) -> str:
    """A table over data sets, by name, of all runs that are stored, and its orderings."""
    found = {name: {row.name: _runs(row, name, store, more) for row in table.rows} for name in names}
    paper = f" | {table.paper_set}: {', '.join(table.paper_columns)}" if table.paper_columns else ""
    columns = (*table.facts, *table.columns)
    lines = [
        f"| set | row | seeds | {' | '.join(columns)}{paper} |",
        "|---|---|---:|" + "---:|" * len(columns) + ("---|" if paper else ""),
    ]
    for name, rows in found.items():
        for row in table.rows:
            runs = rows[row.name]
            if runs:
                shown = " | ".join(_spread([value(run, row, column) for run in runs], column) for column in columns)
                figures = f" | {' / '.join(f'{figure:.2f}' for figure in row.paper)}" if paper else ""
                lines.append(f"| {name} | {row.name} | {len(runs)} | {shown}{figures} |")
    return "\n".join(lines) + "\n" + judged(table, found)


def judged(table: Table, found: dict[str, dict[str, list[Result]]]) -> str:
    """The orderings of a table: how far the first row is ahead on each set, and whether that is more than noise."""
    if not table.orderings:
        return ""
    rows = {row.name: row for row in table.rows}
    lines = [
        "",
        f"| ordering | metric | paper | {' | '.join(found)} |",
        "|---|---|---:|" + "---|" * len(found),
    ]
    for ordering in table.orderings:
        ahead, behind = rows[ordering.ahead], rows[ordering.behind]
        cells = [
            verdict(ordering, ahead, behind, *_of_common_seeds(of_set[ahead.name], of_set[behind.name]))
            for of_set in found.values()
        ]
        lines.append(
            f"| {ordering.claim}: {ahead.name} > {behind.name} | {ordering.metric} | {_gap(table, ordering, rows)} | "
            f"{' | '.join(cells)} |"
        )
    return "\n".join(lines) + "\n"


def _of_common_seeds(first: list[Result], second: list[Result]) -> tuple[list[Result], list[Result]]:
    """The runs of two rows with the seeds that both have: a row with more seeds is no other comparison."""
    common = {run["seed"] for run in first} & {run["seed"] for run in second}
    kept = [[run for run in runs if run["seed"] in common] for runs in (first, second)]
    return kept[0], kept[1]


def verdict(ordering: Ordering, ahead: Row, behind: Row, first: list[Result], second: list[Result]) -> str:
    """The mean lead, two standard errors over seeds, and what follows.

    >>> from papers_rows import Ordering, Row
    >>> runs = lambda *values: [{"test": {"": {"P@1": value}}} for value in values]
    >>> verdict(Ordering("", "P@1", "a", "b"), Row("a", ""), Row("b", ""), runs(3, 3.1, 3.2), runs(1, 1.1, 1.2))
    '+2.00 ± 0.16: holds'
    """
    metric = ordering.metric
    pair = [[value(run, row, metric) for run in runs] for row, runs in ((ahead, first), (behind, second))]
    if not all(pair):
        return "not run"
    lead = float(np.mean(pair[0]) - np.mean(pair[1]))
    num_seeds = min(map(len, pair))
    if num_seeds < MIN_SEEDS:
        return f"{lead:+.2f}: {num_seeds} seed{'s' * (num_seeds > 1)}, not judged"
    noise = 2 * float(np.sqrt(sum(np.var(values, ddof=1) / len(values) for values in pair)))
    found = HOLDS if lead > noise else FAILS if lead < -noise else NOISE
    return f"{lead:+.2f} ± {noise:.2f}: {found}"


def _gap(table: Table, ordering: Ordering, rows: dict[str, Row]) -> str:
    """How far ahead the paper has it, where its figures are given."""
    if ordering.metric not in table.paper_columns:
        return ""
    place = table.paper_columns.index(ordering.metric)
    pair = [rows[name].paper for name in (ordering.ahead, ordering.behind)]
    return "" if any(len(figures) <= place for figures in pair) else f"{pair[0][place] - pair[1][place]:+.2f}"


def _runs(row: Row, name: str, store: Store, more: tuple[str, ...]) -> list[Result]:
    """The stored runs of a row on a set, by seed. Epochs that depend on the data are found by what was stored."""
    wanted = {*settings_of(Row(row.name, row.recipe, row.settings, encoder_of=row.encoder_of), DataSet(name), more)}
    runs = [
        run
        for run in store.runs.values()
        if (run["set"], run["recipe"]) == (name, row.recipe) and _same(set(run["settings"]), wanted, row)
    ]
    return sorted(runs, key=lambda run: run["seed"])


def _same(settings: set[str], wanted: set[str], row: Row) -> bool:
    if not row.equal_steps:
        return settings == wanted
    return settings > wanted and EQUAL_STEPS in settings


def _spread(values: list[float], column: str) -> str:
    if column in ("steps", "batch", "pool", "MB", "CPU s"):
        return f"{np.mean(values):,.0f}"
    shown = f"{np.mean(values):.2f}"
    return shown if len(values) < 2 else f"{shown} ± {np.std(values, ddof=1):.1f}"


def write_page(page: Path, store: Store) -> bool:
    """Rewrite the parts of a page that runs make; whether anything changed.

    A part starts with ``<!-- papers: TABLE [setting ...] -->`` and ends with ``<!-- end -->``. It has all sets on which
    at least one ordering of the table can be judged.
    """
    text = page.read_text(encoding="utf-8")
    new = _PART.sub(
        lambda part: part[1] + "\n" + rendered(part[2], tuple(part[3].split()), store) + "\n" + part[4], text
    )
    if new != text:
        page.write_text(new, encoding="utf-8")
    return new != text


def rendered(name: str, more: tuple[str, ...], store: Store) -> str:
    """A part of a page: the table of all sets that have runs of it."""
    if name in EXPERIMENTS:
        return _joined(sorted(run["table"] for run in store.runs.values() if run["recipe"] == name)) or "Not run yet.\n"
    table = TABLES[name]
    rows = {row.name: row for row in table.rows}
    pairs = [(rows[ordering.ahead], rows[ordering.behind]) for ordering in table.orderings]
    sets = [
        name
        for name in sorted({run["set"] for run in store.runs.values() if "test" in run})
        if any(all(_runs(row, name, store, more) for row in pair) for pair in pairs)
    ]
    return markdown(table, sets, store, more) if sets else "Not run yet.\n"


def _joined(tables: list[str]) -> str:
    """Tables of the same columns as one."""
    if len({tuple(table.splitlines()[:2]) for table in tables}) > 1:
        raise ValueError("tables of one experiment must have the same columns")
    return "".join(
        table if not number else "".join(table.splitlines(keepends=True)[2:]) for number, table in enumerate(tables)
    )
