"""Makes a set of texts in several languages from Debian: a package's description in translation -> its debtags.

    python benchmarks/package_descriptions.py Packages.xz Translation-de.bz2 Translation-fr.bz2 --out FOLDER

The files are those of a Debian mirror: dists/bookworm/main/binary-amd64/Packages.xz and dists/bookworm/main/i18n/.
A package has one text, in one of the languages by turns. The text of a label is its tag in words, in English. A fifth
of the packages, drawn by a seed, is the test split. Output: trn.json.gz, tst.json.gz, lbl.json.gz.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("translations", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-texts", type=int, default=7500)
    asked = parser.parse_args()
    tags = {fields["Package"]: _tags(fields["Tag"]) for fields in _records(asked.packages) if "Tag" in fields}
    texts: dict[str, tuple[str, str]] = {}
    for turn, file in enumerate(asked.translations):
        for number, fields in enumerate(_records(file)):
            name = fields["Package"]
            is_turn = number % len(asked.translations) == turn
            if is_turn and tags.get(name) and name not in texts:
                description = next(
                    value for key, value in fields.items() if key.startswith("Description-") and key[-3:] != "md5"
                )
                title, _, content = description.partition("\n")
                texts[name] = title, " ".join(content.split())
    order = np.random.default_rng(0).permutation(sorted(texts)).tolist()[: asked.max_texts]
    labels = sorted({tag for name in order for tag in tags[name]})
    number_of = {tag: number for number, tag in enumerate(labels)}
    asked.out.mkdir(parents=True, exist_ok=True)
    for split, names in (("tst", order[: len(order) // 5]), ("trn", order[len(order) // 5 :])):
        rows = ((name, texts[name], sorted(number_of[tag] for tag in tags[name])) for name in names)
        _write(
            asked.out / f"{split}.json.gz",
            (
                {"uid": name, "title": text[0], "content": text[1], "target_ind": ids, "target_rel": [1.0] * len(ids)}
                for name, text, ids in rows
            ),
        )
    _write(
        asked.out / "lbl.json.gz", ({"uid": tag, "title": re.sub("[-:]+", " ", tag), "content": ""} for tag in labels)
    )
    print(
        f"{len(order)} texts, {len(labels)} labels, {np.mean([len(tags[name]) for name in order]):.1f} labels per text"
    )


def _records(file: Path) -> Iterator[dict[str, str]]:
    opened = bz2.open if file.suffix == ".bz2" else lzma.open
    with opened(file, "rt", encoding="utf-8") as source:
        for record in source.read().split("\n\n"):
            fields = re.findall(r"^([\w-]+): ?((?:.*)(?:\n[ \t].*)*)", record, flags=re.MULTILINE)
            if fields:
                yield dict(fields)


def _tags(field: str) -> list[str]:
    # a::{b, c} stands for a::b and a::c; tags about the packaging itself say nothing about the content.
    field = re.sub(
        r"([\w-]+)::\{([^}]*)\}", lambda match: ", ".join(f"{match[1]}::{name}" for name in match[2].split(",")), field
    )
    found = {tag.strip() for tag in field.split(",")}
    return sorted(tag for tag in found if "::" in tag and "TODO" not in tag and not tag.startswith("role::"))


def _write(file: Path, rows: Iterable[dict[str, object]]) -> None:
    with gzip.open(file, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main()
