"""Links, anchors and pictures of README and docs lead somewhere in the repository; the web is not asked."""

import re

import pytest

from helpers.paths import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in PAGES if "_generated" not in page.parts]
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def anchors_of(page):
    """Anchors as GitHub and MyST make them of headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for address in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in address:
            continue
        name, _, anchor = address.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), address
        assert not anchor or anchor in anchors_of(target), address


def test_every_page_can_be_reached_from_the_home_page():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"^```{toctree}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            waiting += [page.parent / f"{name}.md" for name in names]
    assert reached == {page for page in PAGES if DOCS in page.parents}


def test_pages_that_the_code_names_exist():
    files = [file for folder in ("src", "tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")]
    for file in [*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{file.relative_to(ROOT)} names {name}"
