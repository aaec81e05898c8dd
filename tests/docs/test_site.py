"""The documentation site: it builds without a warning, its links lead somewhere, it loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.support.looking import serious, web_server
from tests.support.pages import DOCS, ROOT
from tests.support.patience import DEADLINE_S
from tests.support.trace_viewer import browser

pytestmark = pytest.mark.slow  # the site is built


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """`make docs` of a folder, into another."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    return folder


class Built(HTMLParser):
    """A page of the site, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "srcset", "poster", "data", *(("href",) if tag != "a" else ()))
        self.loads += [value for name, value in attrs if name in names and value]


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Built]:
    return {path: Built(path) for path in site.rglob("*.html") if path.name != "404.html"}


def is_foreign(address: str) -> bool:
    return re.match(r"(\w+:)?//", address) is not None


def test_every_page_of_the_docs_is_in_the_site_and_in_its_navigation(site: Path, built: dict[Path, Built]):
    pages = {str(page.relative_to(DOCS)).removesuffix(".md") for page in DOCS.rglob("*.md")}
    pages |= {"changelog", "contributing"}
    assert {str(path.relative_to(site)).removesuffix(".html") for path in built} == pages
    named = re.findall(r": ([\w/-]+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(named) == sorted(pages)


def test_the_site_loads_nothing_from_another_host(site: Path, built: dict[Path, Built]):
    assert [(path.name, each) for path, page in built.items() for each in page.loads if is_foreign(each)] == []
    styles = {path.name: path.read_text() for path in site.rglob("*.css")}
    assert styles
    loaded = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    assert [name for name, text in styles.items() if loaded.search(text)] == []


def test_nothing_in_angle_brackets_is_taken_for_a_tag_and_no_list_or_table_is_left_as_text(site: Path):
    """What GitHub reads as a list or a table, Markdown's own rules read so, too."""
    ours = {"a", "article", "br", "button", "code", "del", "div", "em", "hr", "img", "li", "nav", "ol", "p", "path"}
    ours |= {"picture", "pre", "source", "span", "strong", "sub", "sup", "svg", "ul"}
    ours |= {"table", "tbody", "td", "th", "thead", "tr", *(f"h{level}" for level in range(1, 7))}
    left = re.compile(r"<p>(?:(?!</p>).)*?\n\s*(?:[-*] |\d\. |\|)", re.DOTALL)
    for path in site.rglob("*.html"):
        article = path.read_text().partition("<article")[2].partition("</article>")[0]
        assert set(re.findall(r"<([a-z]\w*)", article)) <= ours, path.name
        assert left.search(article) is None, path.name


def test_the_search_finds_a_page_and_asks_no_other_host(site: Path):
    with web_server(site) as address, browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(DEADLINE_S * 1000)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/index.html?q=duplicate-keys")  # the page itself asks its index once that is read
        link = page.locator(".md-search-result__link").first
        link.wait_for(state="attached")
        assert "checks.html" in link.get_attribute("href")
        assert asked
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.browser)])
def test_pages_fit_their_width_and_can_be_read_by_all(site: Path, scheme: Any):
    with web_server(site) as address, browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        for name in ("checks", "quickstart", "tutorials/slow", "cli", "changelog"):
            page.goto(f"{address}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") == 1280, name
            assert serious(page) == [], name
