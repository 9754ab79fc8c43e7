"""Lower layers never import higher ones, and what must start fast imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unidex

SOURCE = Path(unidex.__file__).parent
# From low to high; parts of one layer may know each other.
LAYERS = [
    {"errors", "progress"},
    {"config", "recipes"},
    {"storage"},
    {"sparse_rows", "topk", "distributed"},
    {"data"},
    {"metrics", "losses"},
    {"features", "encoders", "nn", "index", "augment"},
    {"pools"},
    {"scoring"},
    {"model"},
    {"training"},
    {"report"},
    {"verbs"},
    {"sklearn", "server"},
    {"cli"},
    {"__init__", "__main__"},  # the package names what it offers, and nothing below asks it
]
LAYER = {part: height for height, parts in enumerate(LAYERS) for part in parts}
HEAVY = {"torch", "transformers", "faiss", "matplotlib", "numpy", "scipy", "pandas", "pyarrow"}
FILES = sorted(SOURCE.rglob("*.py"))


def part_of(module):
    """``unidex.data.texts`` -> ``data``."""
    return [*module.split("."), "__init__"][1]


def imported(tree, module, is_package):
    """Every module of ours that a tree imports, at module level or inside functions, with its line."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # "from unidex import progress" names a module, "from unidex.errors import DataError" does not.
            names = [f"{source}.{alias.name}" for alias in node.names] if source == "unidex" else [source]
        else:
            continue
        yield from ((name, node.lineno) for name in names if name.split(".")[0] == "unidex")


def module_of(file):
    parts = ["unidex", *file.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def breaches(source, module, is_package=False):
    own = part_of(module)
    return [
        f"{module}:{line} imports {name}"
        for name, line in imported(ast.parse(source), module, is_package)
        if LAYER.get(part_of(name), 0) > LAYER[own]
    ]


def test_every_part_has_a_layer():
    found = {entry.stem for entry in SOURCE.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()}
    assert found <= set(LAYER), "say in LAYERS where these stand"


@pytest.mark.parametrize("file", FILES, ids=lambda file: module_of(file))
def test_lower_layers_never_import_higher_ones(file):
    assert breaches(file.read_text(encoding="utf-8"), module_of(file), file.name == "__init__.py") == []


def test_an_import_of_a_higher_layer_is_found_anywhere_in_a_module():
    hidden = "def f():\n    if True:\n        from unidex.cli.main import app\n"
    assert breaches(hidden, "unidex.data.texts") == ["unidex.data.texts:3 imports unidex.cli.main"]
    assert breaches("from unidex import verbs", "unidex.data.texts") == ["unidex.data.texts:1 imports unidex.verbs"]
    assert breaches("import unidex.model.model as m", "unidex.nn.heads") == [
        "unidex.nn.heads:1 imports unidex.model.model"
    ]
    assert breaches("from ..metrics import bins", "unidex.data.texts") == ["unidex.data.texts:1 imports unidex.metrics"]
    assert breaches("from . import cli", "unidex.data", is_package=True) == []
    assert breaches("import unidex", "unidex.cli.main") == ["unidex.cli.main:1 imports unidex"]
    assert breaches("from .formats import native\nfrom unidex import progress", "unidex.data.hpo") == []


@pytest.mark.parametrize("module", ["unidex", "unidex.errors", "unidex.config", "unidex.progress", "unidex.cli.main"])
def test_light_modules_import_nothing_heavy(module):
    program = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
