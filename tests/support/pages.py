"""The pages of the documentation, taken apart: headings, links, tables, code blocks and commands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "velodrome"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md"), *PACKAGE.rglob("README.md")])
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
ROW = re.compile(r"^\| `?([^`|]+?)`? \| ([^|]*?) ?\|", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(name: str) -> str:
    return (DOCS / name).read_text()


def prose(text: str) -> str:
    """The text without its code blocks."""
    return FENCE.sub("", text)


def headings(text: str) -> list[str]:
    return [result[1] for result in HEADING.findall(prose(text))]


def anchors(text: str) -> set[str]:
    """What `#…` may name, as GitHub makes them."""
    result: set[str] = set()
    for heading in headings(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (f"{slug}-{number}" if number else slug) in result:
            number += 1
        result.add(f"{slug}-{number}" if number else slug)
    return result


def section(text: str, heading: str) -> str:
    """From a heading to the next of its level or above; what looks like a heading inside a code block is none."""
    hidden = FENCE.sub(lambda block: re.sub("(?m)^#", " ", block.group()), text)
    result = [(len(match[1]), match[2], match.start(), match.end()) for match in HEADING.finditer(hidden)]
    for index, (level, title, _, end) in enumerate(result):
        if title == heading:
            after = (start for other, _, start, _ in result[index + 1 :] if other <= level)
            return text[end : next(after, len(text))]
    raise AssertionError(f"no heading {heading!r}")


def rows(text: str) -> dict[str, str]:
    """The first two columns of the tables in a section, heads left out."""
    result = {name: value for name, value in ROW.findall(prose(text)) if not name.startswith("---")}
    heads = ("setting", "key", "code", "boundary", "field", "part")
    return {name: value for name, value in result.items() if name not in heads}


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text) if language in languages]


def command_lines(body: str) -> Iterator[str]:
    """The commands of a block, continued lines joined."""
    for line in body.replace("\\\n", " ").splitlines():
        line = line.strip().removeprefix("$ ")
        if line and not line.startswith("#"):
            yield line
