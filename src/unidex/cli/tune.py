"""``unidex tune``: better settings of a recipe for a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_note, print_result, print_table, print_text
from unidex.cli.shared_options import Data, Device, Json, Settings, reads_data
from unidex.data.read_options import ReadOptions


@reads_data
def tune(
    data: Data,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the search.", show_default=False)],
    reading: ReadOptions,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Number of trials, with those in DIR already.")] = 20,
    recipe: Annotated[str, typer.Option("--recipe", help="A recipe (unidex recipes) or a TOML file.")] = "auto",
    settings: Settings = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same trials.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Search for better settings of a recipe on held-out train texts.

    A trial trains with other learning rates, temperatures, vector size, hard negatives or augmentation; the first trial
    is the recipe as it is. Test texts are not used. DIR/recipe.toml is the best recipe, DIR/report.html shows all
    trials. A search that was interrupted, by kill -9 too, continues with the same command; a larger --trials adds some.

    Example: unidex tune hpo --trials 30 --out hpo-tuned; unidex train hpo --recipe hpo-tuned/recipe.toml --out model
    """
    from unidex.verbs.tune import PAGE, tune

    found = tune(
        data,
        out=out,
        recipe=recipe,
        num_trials=trials,
        settings=settings or (),
        seed=seed,
        device=device,
        reading=reading,
    )
    print_result(found, as_json, lambda: _print_tuned(found, out / PAGE))


def _print_tuned(found: dict[str, Any], page: Path) -> None:
    gain = found["best"] - found["before"]
    print_note(
        f"{found['metric']} on held-out texts: {found['best']:.2f}, {gain:.2f} above the recipe as it is."
        if gain > 0
        else f"No trial was better than the recipe as it is: {found['metric']} {found['before']:.2f} on held-out texts."
    )
    print_table(("setting", "value"), [setting.split("=", 1) for setting in found["settings"]], title="best settings")
    print_text(f"recipe: {found['file']}")
    print_text(f"page: {page}")
    print_text(f"train with it: {found['command']}")
