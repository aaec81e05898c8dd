"""What mkdocs needs to build the site from docs/, whose pages are also read in the repository.

CHANGELOG.md and CONTRIBUTING.md are pages of the site. A link to any other file outside docs/ is shown as its path: the
site does not say where the repository is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
ADDED = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:]+)\)")
_FENCE = re.compile(r"(^[ ]*```.*?^[ ]*```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are outside docs/."""
    for source, name in ADDED.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with links that resolve in the site; code blocks are left as they are."""
    inside = {name: source for source, name in ADDED.items()}
    source = inside.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = _FENCE.split("\n".join(indented(markdown.splitlines())))
    parts[::2] = [_LINK.sub(lambda link: moved(link, source), part) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, **_: Any) -> str:
    """The page with a name for the search, which the theme leaves without one."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def indented(lines: list[str]) -> Iterator[str]:
    """What belongs to an item of a list has two spaces more: GitHub asks for two, Python's Markdown for four."""
    in_list = in_code = False
    for line in lines:
        if line.startswith("```"):
            in_code = not in_code
        if line[:1].strip():
            in_list = not in_code and re.match(r"([-*]|\d+\.) ", line) is not None
        yield f"  {line}" if in_list and line.startswith("  ") else line


def moved(link: re.Match[str], source: str) -> str:
    """A link of a file of the repository, as the site has it."""
    path, _, anchor = link[2].partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
    if target in ADDED:
        target = f"docs/{ADDED[target]}"
    if not target.startswith("docs/"):
        shown = link[1].strip("`")
        return f"`{target}`" if shown in target else f"{link[1]} (`{target}`)"
    if not path:
        return link[0]
    here = posixpath.dirname(f"docs/{ADDED.get(source, source.removeprefix('docs/'))}")
    return f"[{link[1]}]({posixpath.relpath(target, here)}{'#' + anchor if anchor else ''})"
