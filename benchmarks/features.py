"""CPU seconds, features a text and memory of the bag encoder's features on real data sets.

    python benchmarks/features.py --data ../shared/data --set CommitFiles --set DebianRelated

A data set is a folder with trn.json.gz and lbl.json.gz, one JSON object a line with "title" and "content". One that is
absent is skipped with a word. Every measurement runs in a process of its own, so that peak memory is its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import msgspec

from unidex.config import Features as FeatureSettings
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.features.extractor import FeatureExtractor

SETS = ("CommitFiles", "DebianRelated", "WinAPISeeAlso", "YSOTitles", "MDNSeeAlso", "GutenbergSubjects")
SETTINGS: dict[str, FeatureSettings] = {
    "words": FeatureSettings(num_buckets=0, parts=False, bigrams=False),
    "words+bigrams": FeatureSettings(num_buckets=0, parts=False),
    "words+parts+bigrams": FeatureSettings(num_buckets=0),
    "the same, 65536 buckets": FeatureSettings(num_buckets=65_536),
    "words+parts+bigrams+chars": FeatureSettings(num_buckets=0, chars=True),
    "words+subwords": FeatureSettings(num_buckets=0, parts=False, bigrams=False, subwords=True),
}
NUM_SINGLE = 2000


class Line(msgspec.Struct):
    """What is read of a line."""

    title: str = ""
    content: str = ""


def read(file: Path) -> Texts:
    packer = Packer()
    decoder = msgspec.json.Decoder(Line)
    with gzip.open(file) as lines:
        # In small pieces, so that peak memory tells of features and not of reading.
        while piece := [decoder.decode(line) for line in islice(lines, 10_000)]:
            packer.add_pairs([line.title for line in piece], [line.content for line in piece])
    return Texts.packed(packer)


def measure(folder: Path, settings: FeatureSettings) -> dict[str, float]:
    texts, label_texts = read(folder / "trn.json.gz"), read(folder / "lbl.json.gz")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = [time.process_time()]
    features = FeatureExtractor.fit(texts, label_texts, settings)
    times.append(time.process_time())
    matrix = features.transform(texts)
    times.append(time.process_time())
    singles = list(texts[NUM_SINGLE : 2 * NUM_SINGLE])
    for text in texts[:NUM_SINGLE]:  # What a service has seen before.
        features.transform_one(text)
    times.append(time.process_time())
    for text in singles:
        features.transform_one(text)
    times.append(time.process_time())
    return {
        "fit": times[1] - times[0],
        "transform": times[2] - times[1],
        "single": (times[4] - times[3]) / len(singles) * 1e6,
        "features": features.num_features,
        "nnz": matrix.nnz / len(texts),
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of data sets")
    parser.add_argument("--set", action="append", choices=SETS, help="data set; may be given again; default all")
    parser.add_argument("--settings", action="append", choices=SETTINGS, help="may be given again; default all")
    parser.add_argument("--one", nargs=2, metavar=("SET", "SETTINGS"), help="measure one, print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        name, settings = arguments.one
        print(json.dumps(measure(arguments.data / name, SETTINGS[settings])))
        return
    print(f"Python {platform.python_version()}, {platform.processor() or platform.machine()}; CPU seconds\n")
    print("| data set | settings | fit | transform | one text, us | features | nnz a text | MB above the texts |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.set or SETS:
        if not (arguments.data / name / "trn.json.gz").exists():
            print(f"{name}: skipped, {arguments.data / name} has no trn.json.gz", file=sys.stderr)
            continue
        for settings in arguments.settings or SETTINGS:
            command = [sys.executable, __file__, "--data", str(arguments.data), "--one", name, settings]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            cells = (
                f"{found['fit']:.2f}",
                f"{found['transform']:.2f}",
                f"{found['single']:.0f}",
                f"{found['features']:,}",
                f"{found['nnz']:.1f}",
                f"{found['megabytes']:.0f}",
            )
            print(f"| {name} | {settings} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
