"""Row tables that live in files while a network is trained: more rows than memory."""

from __future__ import annotations

from pathlib import Path

from unidex.nn.network import Network


def tables_to_files(network: Network, folder: Path, rank: int) -> None:
    """Let the tables of a network live in a folder from now on; those of the stage before, which is over, stay there.

    Args:
        network: on a CPU.
        folder: of this phase of the run.
        rank: which process this is; each has files of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in network.tables().items():
        if table.file is None:
            table.move_to(folder / f"{name}.{rank}.table")
