"""Makes a set of long texts from manual pages: a whole page -> the pages of its section "See also".

    python benchmarks/manual_pages.py /usr/share/man --out FOLDER [--language de] [--min-words 300]

The text is the page as ``mandoc`` prints it, without that section; line breaks stay, so that headings can be seen. A
label is a page that another one refers to; its text is its name and its description in one line. A fifth of the pages,
drawn by a seed, is the test split. Packages with many pages can be unpacked without an installation: ``apt-get
download PACKAGE``, ``dpkg-deb -x FILE FOLDER``. Output: trn.json.gz,
tst.json.gz, lbl.json.gz, filter_labels_*.txt.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_SEE_ALSO = {
    "en": "SEE ALSO",
    "de": "SIEHE AUCH",
    "es": "VÉASE TAMBIÉN",
    "fi": "KATSO MYÖS",
    "fr": "VOIR AUSSI",
    "pl": "ZOBACZ TAKŻE",
}
_REFERENCE = re.compile(r"([\w.:+-]+)\s?\((\d\w*)\)")
_MODULE = re.compile(r"\w+(?:::\w+)+")  # Pages of Perl modules refer to each other by name alone.
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Page:
    """A manual page; ``uid`` is its name and section, such as open(2)."""

    uid: str
    title: str
    content: str
    see_also: frozenset[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", type=Path, help="folders with man1, man2, ...")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--language", default="en", choices=sorted(_SEE_ALSO))
    parser.add_argument("--min-words", type=int, default=300)
    parser.add_argument("--max-pages", type=int, default=6000)
    parser.add_argument("--mandoc", default="mandoc", help="the program mandoc")
    asked = parser.parse_args()
    if shutil.which(asked.mandoc) is None:
        sys.exit(f"mandoc must be installed, but {asked.mandoc} was not found: apt-get install mandoc")
    pages = {page.uid: page for page in _pages(asked.roots, asked.language, asked.mandoc)}
    known = {uid.lower(): uid for uid in pages}
    targets = {uid: _targets(page, known) for uid, page in pages.items()}
    texts = [uid for uid, page in pages.items() if targets[uid] and len(page.content.split()) >= asked.min_words]
    order = np.random.default_rng(0).permutation(sorted(texts)).tolist()[: asked.max_pages]
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    labels = sorted({target for uid in order for target in targets[uid]})
    asked.out.mkdir(parents=True, exist_ok=True)
    number = {label: at for at, label in enumerate(labels)}
    splits = {"trn": "train", "tst": "test"}
    for name, uids in (("trn", train), ("tst", test)):
        rows = ((pages[uid], sorted(number[target] for target in targets[uid])) for uid in uids)
        _write(
            asked.out / f"{name}.json.gz",
            ({**_text(page), "target_ind": ids, "target_rel": [1.0] * len(ids)} for page, ids in rows),
        )
        # A page does not refer to itself.
        own = [f"{row} {number[uid]}\n" for row, uid in enumerate(uids) if uid in number]
        (asked.out / f"filter_labels_{splits[name]}.txt").write_text("".join(own))
    _write(asked.out / "lbl.json.gz", ({**_text(pages[uid]), "content": ""} for uid in labels))
    lengths = [len(pages[uid].content.split()) for uid in order]
    print(
        f"{len(train)} train texts, {len(test)} test texts, {len(labels)} labels, "
        f"{np.mean([len(targets[uid]) for uid in order]):.1f} labels per text; "
        f"words per text: median {np.median(lengths):.0f}, mean {np.mean(lengths):.0f}, maximum {max(lengths)}"
    )


def _pages(roots: Iterable[Path], language: str, mandoc: str) -> Iterator[Page]:
    seen: Counter[str] = Counter()
    for root in roots:
        for file in sorted(root.glob("man*/*.gz")):
            raw = gzip.decompress(file.read_bytes())
            # A page that only includes another one is the same page under another name.
            if len(raw) > _MAX_BYTES or raw.lstrip().startswith(b".so "):
                continue
            page = _page(file, raw, _SEE_ALSO[language], mandoc)
            if page is not None and not seen[page.content]:
                seen[page.content] += 1
                yield page


def _page(file: Path, raw: bytes, see_also: str, mandoc: str) -> Page | None:
    command = [mandoc, "-T", "utf8", "-O", "width=100"]
    printed = subprocess.run(command, input=raw, capture_output=True, check=False).stdout.decode(errors="replace")
    # The first and the last line have the name of the page and of the system.
    lines = re.sub(r".\x08", "", printed).strip("\n").split("\n")[1:-1]
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line and not line[0].isspace():
            current = sections.setdefault(line.strip(), [])
        current.append(line)
    names = list(sections)
    if not names or see_also not in (name.upper() for name in names):
        references = ""
    else:
        references = "\n".join(next(sections.pop(name) for name in names if name.upper() == see_also))
        # A word cut at the end of a line.
        references = re.sub("[\N{HYPHEN}-]\n *", "", references)
    first = next((name for name in names if name in sections), None)
    if first is None:
        return None
    title = " ".join(" ".join(sections.pop(first)[1:]).split())
    match = re.match(r"(.+)\.(\d\w*)\.gz$", file.name)
    if match is None or not re.search("\\s[-\N{EN DASH}\N{EM DASH}]\\s", title):
        return None
    uid = f"{match[1]}({match[2][0]})"
    content = "\n".join(re.sub(r" +", " ", line.strip()) for section in sections.values() for line in section)
    found = {f"{name}({section[0]})" for name, section in _REFERENCE.findall(references)}
    found |= {f"{name}(3)" for name in _MODULE.findall(references)}
    return Page(uid, title[:300], re.sub(r"\n{2,}", "\n\n", content).strip(), frozenset(found - {uid}))


def _targets(page: Page, known: dict[str, str]) -> set[str]:
    return {known[uid.lower()] for uid in page.see_also if uid.lower() in known} - {page.uid}


def _text(page: Page) -> dict[str, object]:
    return {"uid": page.uid, "title": page.title, "content": page.content}


def _write(file: Path, rows: Iterable[dict[str, object]]) -> None:
    with gzip.open(file, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main()
