"""Every page is linked, every link resolves, every example parses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.pages import DOCS, LINK, PACKAGE, PAGES, ROOT, anchors, blocks, name_of, prose, read


def test_the_index_leads_to_every_page():
    linked = {target.partition("#")[0] for target in LINK.findall(read("index.md"))}
    outside = {"../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md"}
    assert linked == outside | {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}


def broken(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return True
    return bool(anchor) and (there.suffix != ".md" or anchor not in anchors(there.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_resolves(page: Path):
    text = page.read_text()
    targets = [target for target in LINK.findall(prose(text)) if "://" not in target]
    assert [target for target in targets if broken(page, target)] == []
    for body in blocks(text, "json"):  # and every example parses
        json.loads(body)
    for body in blocks(text, "yaml"):
        yaml.safe_load(body)
    for body in blocks(text, "python"):
        compile(body, name_of(page), "exec")


def test_every_page_that_the_code_points_to_is_there():
    mentions = {
        (str(source.relative_to(ROOT)), *mention)
        for source in PACKAGE.rglob("*.py")
        for mention in re.findall(r"docs/([\w-]+\.md)(?:#([\w-]+))?", source.read_text())
    }
    assert mentions
    assert [one for one in sorted(mentions) if broken(DOCS / "index.md", f"{one[1]}#{one[2]}")] == []
