"""Every notebook in examples/ runs from its first cell to its last."""

import ast
import json

import pytest

from helpers import warm_start
from helpers.paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def program_of(notebook):
    """The cells as one program that prints the value of the last expression of each, as a notebook shows it."""
    program = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            if isinstance(tree.body[-1], ast.Expr):
                shown = ast.Call(ast.Name("print", ast.Load()), [tree.body[-1].value], [])
                tree.body[-1] = ast.Expr(shown)
            program.append(ast.unparse(ast.fix_missing_locations(tree)))
    return "\n".join(program)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("csv_to_service", ["qwertz asdfgh  (no known words)", "(200, "]),
        ("comparing_recipes", ["(1500, 300, ", "unidec", "depsl", "auto"]),
        ("living_labels", ["Loss of smell after an infection", "Anosmia after an infection", "False"]),
    ],
)
def test_a_notebook_runs_and_shows_what_it_says(name, lines):
    done = warm_start.run(program=program_of(ROOT / "examples" / f"{name}.ipynb"))
    assert done.returncode == 0, done.stderr[-3000:]
    for line in lines:
        assert line in done.stdout


def test_every_notebook_is_run_and_has_no_output_of_its_own():
    assert [notebook.stem for notebook in NOTEBOOKS] == ["comparing_recipes", "csv_to_service", "living_labels"]
    for notebook in NOTEBOOKS:
        assert all(not cell.get("outputs") for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"])
