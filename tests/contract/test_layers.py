"""Lower layers never import higher ones, and what must start fast imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unidex

SOURCE = Path(unidex.__file__).parent
# From low to high. A part imports parts of lower layers only, so that no two parts import each other.
LAYERS = [
    {"errors", "progress"},
    {"config", "recipes"},
    {"native"},
    {"storage"},
    {"sparse_rows", "distributed"},
    {"topk"},
    {"data"},
    {"metrics", "losses"},
    {"features"},
    {"nn"},
    {"encoders"},
    {"index"},
    {"augment"},
    {"pools"},
    {"scoring"},
    {"model"},
    {"training"},
    {"report", "export"},
    {"verbs"},
    {"sklearn", "server", "notebook"},
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
        ours = [name for name in names if name.split(".")[0] == "unidex" and name != "unidex.__version__"]
        yield from ((name, node.lineno) for name in ours)


def module_of(file):
    parts = ["unidex", *file.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def breaches(source, module, is_package=False):
    own = part_of(module)
    return [
        f"{module}:{line} imports {name}"
        for name, line in imported(ast.parse(source), module, is_package)
        if part_of(name) not in LAYER or (part_of(name) != own and LAYER[part_of(name)] >= LAYER[own])
    ]


def test_the_layers_are_the_parts_of_the_package():
    found = [entry.stem for entry in SOURCE.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()]
    # Recipes are files of settings, no package.
    assert sorted([*found, "recipes"]) == sorted(LAYER)


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
    assert breaches("import unidex.losses.bce", "unidex.metrics.bins") == [
        "unidex.metrics.bins:1 imports unidex.losses.bce"
    ]
    assert breaches("import unidex.nowhere", "unidex.cli.main") == ["unidex.cli.main:1 imports unidex.nowhere"]
    assert breaches("from .formats import native\nfrom unidex import progress", "unidex.data.hpo") == []


MAX_TOP_LEVEL_MODULES = 10
# Folders whose modules are named after what they set or offer: a section of a recipe, a verb.
NAMED_AFTER_OTHERS = {"config", "verbs", "verbs/comparison", "cli"}
# Modules of one name that mean the same in each folder.
SAME_MEANING = {"registry"}


def repeated_names(files):
    """Names of modules that have several meanings, with their folders."""
    folders = {}
    for file in files:
        folders.setdefault(file.stem, set()).add(file.parent.as_posix())
    meanings = {name: sorted(found - NAMED_AFTER_OTHERS) for name, found in folders.items()}
    return {name: found for name, found in meanings.items() if len(found) > 1 and name not in SAME_MEANING}


def test_a_module_has_a_name_of_its_own_which_is_a_noun():
    files = [file.relative_to(SOURCE) for file in FILES if not file.stem.startswith("__")]
    assert repeated_names(files) == {}
    assert [str(file) for file in files if file.stem.endswith("ing")] == []
    assert repeated_names([Path("a/b.py"), Path("c/b.py"), Path("cli/b.py")]) == {"b": ["a", "c"]}


def test_the_top_level_is_small():
    assert len(list(SOURCE.glob("*.py"))) <= MAX_TOP_LEVEL_MODULES


@pytest.mark.parametrize("module", ["unidex", "unidex.errors", "unidex.config", "unidex.progress", "unidex.cli.main"])
def test_light_modules_import_nothing_heavy(module):
    program = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
