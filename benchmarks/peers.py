"""unidex beside PECOS, Omikuji, napkinXC and fastText, on the same data, in the same run.

Run: python benchmarks/peers.py DATA... --peers ENVIRONMENTS --peers-scripts SCRIPTS [--text title]
     [--systems pecos,pecos+chars,bonsai,bonsai+chars,hs,ovr,unidex ...] [--recipe auto] [--set section.key=value]
     [--keep FOLDER] [--json FILE.json] [--picture FILE.svg] > tables.md
DATA is a folder, or FOLDER:title to give it another --text than the rest. ENVIRONMENTS holds one virtual environment
per peer (libpecos, omikuji, napkinxc, fasttext-wheel), SCRIPTS the scripts that run them (prep_tfidf.py ...).

A peer that reads TF-IDF is run on words and word bigrams and, as PEER+chars, on these with character 3-5-grams. The row
"best peer" has the best value of each metric over all peers and both feature sets.

All systems get the same copy of the data, with the fields of --text only, and are scored by ``unidex score`` or
``unidex evaluate`` with the filter pairs. One run at a time; CPU seconds are of all threads. What is in the folder of
--keep is not run again: after a change of unidex, remove its folder (unidex-RECIPE...) there.

train CPU s     Of a peer: as its script prints it, from features to a model. Of unidex: the whole process of
                ``unidex train`` on the train texts, from start-up and reading to choosing, training and writing the
                model.
features        CPU time of the peers' TF-IDF, of all train texts and per test text; "included" where a system makes its
                own. Reading, and the files between features and peers, are not counted.
predict         CPU time per text, all test texts at once, ten labels per text; of unidex from texts, of peers from
                features.
peak MB         The highest resident memory of training; the peers' features were made by another process.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from peers_report import Row, Task, draw, table
from peers_runs import PEERS, Bench, RunError

TEXTS = ("title", "content", "title+content")
# One classifier per label costs time by texts times labels, so that it is run only where it is asked for.
SYSTEMS = (*PEERS, "unidex")
DEFAULT_SYSTEMS = tuple(name for name in SYSTEMS if not name.startswith("ovr"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--peers", type=Path, help="the folder with one environment per peer")
    parser.add_argument("--peers-scripts", type=Path, help="the folder with the scripts that run the peers")
    parser.add_argument("--text", default="title+content", choices=TEXTS)
    parser.add_argument("--systems", help="all but ovr unless given; unidex alone without --peers")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--threads", type=int, default=2, help="of all systems; the peers' scripts are written for 2")
    parser.add_argument("--keep", type=Path, default=Path("runs/peers"), help="a folder for data, models and results")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args()
    wanted = (
        chosen.systems if chosen.systems is not None else ",".join(DEFAULT_SYSTEMS if chosen.peers else ("unidex",))
    )
    systems = [name.strip() for name in wanted.split(",") if name.strip()]
    unknown = [name for name in systems if name not in SYSTEMS]
    if unknown or not systems:
        parser.error(f"--systems must be of {', '.join(SYSTEMS)}, but is {wanted!r}")
    problem = missing_peers(systems, chosen.peers, chosen.peers_scripts)
    if problem:
        parser.error(problem)

    results: list[tuple[Task, list[Row]]] = []
    failed: list[str] = []
    for given in chosen.data:
        source, text = source_and_text(given, chosen.text)
        try:
            bench = Bench(source, text, chosen.keep, num_threads=chosen.threads)
        except RunError as error:
            failed.append(f"{given}: {error}")
            continue
        rows = []
        for name in systems:
            try:
                rows.append(run(bench, name, chosen))
            # One peer that breaks on one set must not cost the hours of the others.
            except RunError as error:
                failed.append(f"{bench.task.name}, {text}, {name}: {error}")
                print(failed[-1], file=sys.stderr)
        if rows:
            results.append((bench.task, rows))
            print(table(bench.task, rows), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(document(results, chosen), indent=2) + "\n")
    if chosen.picture and results:
        draw(results, chosen.picture)
    if failed:
        sys.exit("\n".join(["these runs failed and are left out:", *failed]))


def run(bench: Bench, name: str, chosen: argparse.Namespace) -> Row:
    if name != "unidex":
        return bench.peer(name, chosen.peers.absolute(), chosen.peers_scripts.resolve())
    title = " ".join(["unidex", Path(chosen.recipe).stem, *chosen.settings])
    return bench.unidex(chosen.recipe, chosen.settings, title)


def source_and_text(given: str, text: str) -> tuple[str, str]:
    """A data set and the fields that make its texts.

    >>> source_and_text("sets/shop:title", "title+content"), source_and_text("sets/shop", "title+content")
    (('sets/shop', 'title'), ('sets/shop', 'title+content'))
    """
    source, _, own = given.rpartition(":")
    return (source, own) if source and own in TEXTS else (given, text)


def missing_peers(systems: list[str], environments: Path | None, scripts: Path | None) -> str | None:
    """What is not there of what the peers need, in one line; None where all is."""
    peers = [PEERS[name] for name in systems if name != "unidex"]
    if not peers:
        return None
    if environments is None or scripts is None:
        return "peers need --peers and --peers-scripts; give both, or --systems unidex"
    for peer in peers:
        if not (environments / peer.environment / "bin" / "python").exists():
            return f"{peer.title} must be installed in {environments / peer.environment}, but is not; see --systems"
        if not peer.file(scripts).is_file():
            return f"{scripts} must hold {peer.script}, but does not; name the folder of the peers' scripts"
    return None


def document(results: list[tuple[Task, list[Row]]], chosen: argparse.Namespace) -> dict[str, object]:
    """Everything that was measured, and how."""
    return {
        "recipe": chosen.recipe,
        "settings": chosen.settings,
        "threads": chosen.threads,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "results": [{"task": asdict(task), "rows": [row.as_dict() for row in rows]} for task, rows in results],
    }


if __name__ == "__main__":
    main()
