"""Makes a set of texts from Debian: a package's description, perhaps in translation -> its debtags.

    python benchmarks/package_descriptions.py Packages.xz Translation-de.bz2 Translation-fr.bz2 --out FOLDER
    apt-cache dumpavail > packages.txt; python benchmarks/package_descriptions.py packages.txt --out FOLDER

The files are those of a Debian mirror: dists/bookworm/main/binary-amd64/Packages.xz and dists/bookworm/main/i18n/.
A package has one text, in one of the languages by turns; without translations, its name and the first line of its
English description. The text of a label is its tag in words, in English. A fifth of the packages, drawn by a seed, is
the test split; with --by-source a fifth of the source packages. Output: trn.json.gz, tst.json.gz, lbl.json.gz.
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
    parser.add_argument("translations", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-texts", type=int, default=7500)
    parser.add_argument("--by-source", action="store_true", help="packages of one source are in one split")
    parser.add_argument("--roles", action="store_true", help="with tags such as role::program")
    asked = parser.parse_args()
    packages = {fields["Package"]: fields for fields in _records(asked.packages) if "Tag" in fields}
    tags = {name: found for name, fields in packages.items() if (found := _tags(fields["Tag"], with_roles=asked.roles))}
    sources = {name: packages[name].get("Source", name).split()[0] if asked.by_source else name for name in tags}
    texts: dict[str, tuple[str, str]] = {}
    for name in () if asked.translations else tags:
        fields = packages[name]
        description = fields.get("Description") or fields.get("Description-en", "")
        texts[name] = f"{name}: {description.partition(chr(10))[0]}", ""
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
    drawn = np.random.default_rng(0).permutation(sorted({sources[name] for name in texts})).tolist()
    place_of = {source: place for place, source in enumerate(drawn)}
    order = sorted(texts, key=lambda name: (place_of[sources[name]], name))[: asked.max_texts]
    num_test = len(order) // 5
    while num_test < len(order) and sources[order[num_test]] == sources[order[num_test - 1]]:
        num_test += 1
    labels = sorted({tag for name in order for tag in tags[name]})
    number_of = {tag: number for number, tag in enumerate(labels)}
    asked.out.mkdir(parents=True, exist_ok=True)
    for split, names in (("tst", order[:num_test]), ("trn", order[num_test:])):
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
    opened = {".bz2": bz2.open, ".xz": lzma.open}.get(file.suffix, open)
    with opened(file, "rt", encoding="utf-8") as source:
        for record in source.read().split("\n\n"):
            fields = re.findall(r"^([\w-]+): ?((?:.*)(?:\n[ \t].*)*)", record, flags=re.MULTILINE)
            if fields:
                yield dict(fields)


def _tags(field: str, *, with_roles: bool) -> list[str]:
    # a::{b, c} stands for a::b and a::c; tags about the packaging itself (roles) say nothing about the content.
    field = re.sub(
        r"([\w-]+)::\{([^}]*)\}", lambda match: ", ".join(f"{match[1]}::{name}" for name in match[2].split(",")), field
    )
    found = {tag.strip() for tag in field.split(",")}
    hidden = ("TODO",) if with_roles else ("TODO", "role::")
    return sorted(tag for tag in found if "::" in tag and not any(word in tag for word in hidden))


def _write(file: Path, rows: Iterable[dict[str, object]]) -> None:
    with gzip.open(file, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main()
