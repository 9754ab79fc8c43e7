"""``unidex export``: a model in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_note, print_result, print_text
from unidex.cli.shared_options import Json, ModelFolder
from unidex.export.format_names import FORMATS


def export(
    model: ModelFolder,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help=f"{', '.join(FORMATS)}.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write: new or empty.", show_default=False)
    ],
    mode: Annotated[
        str | None, typer.Option("--mode", help="The heads to export: dual, classifier or both; default: the format's.")
    ] = None,
    approximate: Annotated[
        bool,
        typer.Option("--approximate", help="Export a bag to sentence-transformers without what has no place there."),
    ] = False,
    encoder_only: Annotated[
        bool, typer.Option("--encoder-only", help="onnx: the encoder and its heads, without the labels.")
    ] = False,
    push_to: Annotated[
        str | None, typer.Option("--push-to", metavar="OWNER/NAME", help="Upload the folder to the Hugging Face hub.")
    ] = None,
    url: Annotated[
        str,
        typer.Option("--url", help="pgvector, milvus: the database; default: UNIDEX_PGVECTOR_URL, UNIDEX_MILVUS_URL."),
    ] = "",
    table: Annotated[
        str, typer.Option("--table", help="pgvector, milvus: the table to make; default: a new name.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Write a model in the format of another tool.

    sentence-transformers: one head (default: dual) in modules of that library alone. Transformers are exported exactly,
    bags exactly if trained with --recipe static; others need --approximate, and a note says how near they are.

    onnx: model.onnx with encoder, heads and the k best of all labels by the weighted sum of dual encoder, classifier
    and label prior (without the kNN part and the ranker). What makes its inputs is beside it: tokenizer.json, or
    features/ for words.

    huggingface: the model folder with a model card (README.md) for the Hugging Face hub; --push-to uploads it.

    parquet: labels.parquet with one row per label (uid, text, vector, prior). The inner product of a label's vector and
    the query of a text (model.encode in Python) is the score that finds the model's candidates. For any vector
    database.

    pgvector, milvus: a model folder whose label vectors are in a new table of PostgreSQL (with pgvector) or Milvus.
    unidex predict, serve and labels use it like any model.

    The folder is written completely or not at all. export.json in it names the format, the model's version and what the
    export does not hold. Nothing is approximated without a note.

    Example: unidex export hpo-model --to parquet --out hpo-vectors

    Example: unidex export my-model --to sentence-transformers --out my-encoder

    Example: unidex export hpo-model --to pgvector --url postgresql://me@db/labels --out hpo-in-postgres
    """
    from unidex.export.registry import ExportOptions
    from unidex.verbs.export import export

    chosen = ExportOptions(mode, approximate, encoder_only, push_to, url, table)  # type: ignore[arg-type]  # checked there
    done = export(model, to, out, chosen)

    def show() -> None:
        print_text(f"{out}: {', '.join(done['files'])} ({done['num_bytes'] / 1e6:,.1f} MB)")
        for note in done["notes"]:
            print_note(note)

    print_result(done, as_json, show)
