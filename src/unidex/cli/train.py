"""``unidex train``: a model folder from a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from unidex.cli.output import print_json, print_text
from unidex.cli.shared_options import Data, Device, Json, Settings, reads_data
from unidex.data.read_options import ReadOptions


@reads_data
def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The model folder to write.", show_default=False)],
    reading: ReadOptions,
    recipe: Annotated[str, typer.Option("--recipe", help="A recipe (unidex recipes) or a TOML file.")] = "auto",
    settings: Settings = None,
    favour: Annotated[
        Literal["accuracy", "balanced", "rare"] | None,
        typer.Option(
            "--favour",
            help="What to rank for: accuracy (P@k), rare labels (PSP@k), or both balanced.  [default: balanced]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same model.")] = 0,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run with the same --out.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Train also if memory or disk seem too small (unidex plan).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a data set and score it on its test texts.

    Checkpoints are in MODEL.training during the run. --resume continues from the newest one and gives the same model as
    an uninterrupted run.

    On several processes or machines: torchrun --nproc-per-node 4 -m unidex train ... (docs/how-to/many-processes.md).

    Examples: unidex train hpo --out hpo-model; unidex train a.csv --out a --favour rare
    """
    from unidex.cli.score import print_scores
    from unidex.verbs.score import Scores
    from unidex.verbs.train import train_together

    chosen = [*(settings or ()), *([] if favour is None else [f"predict.favour={favour}"])]
    model = train_together(
        data, recipe, out=out, settings=chosen, seed=seed, device=device, resume=resume, reading=reading, force=force
    )
    if model is None:
        return
    if as_json:
        print_json({"model": str(out)} | model.metrics)
        return
    test = model.metrics.get("test")
    if test is not None:
        print_scores(Scores.from_dict(test))
    print_text(f"model: {out}")
