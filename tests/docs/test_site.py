"""The documentation site: it builds without a warning, its links lead somewhere, it loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
from looking import serious, web_server
from pages import DOCS, PAGES, ROOT
from patience import DEADLINE_S
from trace_viewer import browser

SOURCES = ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md", "scripts/site_pages.py")


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
    """A page of the site: what it links to, what it loads, the ids in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values.get("id", ""), values.get("name", "")}
        if "href" in values:
            (self.links if tag == "a" else self.loads).append(values["href"])
        self.loads += [values[name] for name in ("src", "srcset", "poster", "data") if values.get(name)]


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


def test_every_link_of_the_site_leads_to_a_page_and_a_heading(built: dict[Path, Built]):
    wrong = []
    for path, page in built.items():
        for link in [*page.links, *page.loads]:
            target, anchor = urldefrag(link)
            if is_foreign(link) or link.startswith("data:"):
                continue
            there = (path.parent / unquote(target)).resolve() if target else path
            there = there / "index.html" if there.is_dir() else there
            known = anchor == "" or there not in built or unquote(anchor) in built[there].ids
            if not there.exists() or not known:
                wrong.append((path.name, link))
    assert wrong == []


def test_the_site_loads_nothing_from_another_host(site: Path, built: dict[Path, Built]):
    assert [(path.name, each) for path, page in built.items() for each in page.loads if is_foreign(each)] == []
    styles = {path.name: path.read_text() for path in site.rglob("*.css")}
    assert styles
    loaded = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    assert [name for name, text in styles.items() if loaded.search(text)] == []


def test_files_outside_the_docs_are_named_not_linked(site: Path, built: dict[Path, Built]):
    assert [link for page in built.values() for link in page.links if "velodrome/" in link or "README" in link] == []
    assert "<code>velodrome/training/loop.py</code>" in (site / "training.html").read_text()
    assert "Unreleased" in (site / "changelog.html").read_text()


def test_lists_and_tables_are_not_left_as_text(site: Path):
    """What GitHub reads as a list or a table, Markdown's own rules read so, too."""
    left = re.compile(r"<p>(?:(?!</p>).)*?\n\s*(?:[-*] |\d\. |\|)", re.DOTALL)
    assert {
        path.name: found[0][:200] for path in site.rglob("*.html") if (found := left.search(path.read_text()))
    } == {}


def test_a_list_in_a_list_and_code_in_a_list_stay_in_it(site: Path):
    assert re.search(r"<ul>\s*<li>(<p>)?<strong>429", (site / "collect.html").read_text())
    item = (site / "rollouts.html").read_text().partition("with other content (and 41 more")
    assert item[1]
    assert item[0].rpartition("<li>")[2].count("</li>") == 0


def test_nothing_in_angle_brackets_is_taken_for_a_tag(site: Path):
    ours = {"a", "article", "br", "button", "code", "del", "div", "em", "hr", "img", "li", "nav", "ol", "p", "path"}
    ours |= {"picture", "pre", "source", "span", "strong", "sub", "sup", "svg", "ul"}
    ours |= {"table", "tbody", "td", "th", "thead", "tr", *(f"h{level}" for level in range(1, 7))}
    articles = {path.name: path.read_text().partition("<article")[2] for path in site.rglob("*.html")}
    used = {name: set(re.findall(r"<([a-z]\w*)", text.partition("</article>")[0])) for name, text in articles.items()}
    assert {name: tags - ours for name, tags in used.items() if tags - ours} == {}


def test_every_picture_is_small_is_there_in_light_and_dark_and_is_shown():
    pictures = DOCS / "pictures"
    sizes = {path.name: path.stat().st_size for path in pictures.iterdir()}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > 150_000} == {}
    assert sum(sizes.values()) < 2_000_000
    shown: set[tuple[str, str]] = set()
    for page in PAGES:
        both = re.findall(
            r'srcset="([^"]+)-dark(\.png|\.svg)">\n +<img alt="[^"]+" src="([^"]+)-light(\.png|\.svg)">',
            page.read_text(),
        )
        assert [dark for *dark, light, kind in both if dark != [light, kind]] == []
        assert [dark for dark, *_ in both if (page.parent / dark).resolve().parent != pictures] == []
        shown |= {(Path(dark).name, kind) for dark, kind, *_ in both}
    assert sorted(sizes) == sorted(f"{name}-{scheme}{kind}" for name, kind in shown for scheme in ("dark", "light"))


def test_a_broken_link_a_missing_heading_and_a_page_without_a_place_are_seen(tmp_path: Path):
    shutil.copytree(DOCS, tmp_path / "docs")
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert build(tmp_path, tmp_path / "site").returncode == 0
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n\n[a](nowhere.md) [b](collect.md#nowhere)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert [word in done.stderr for word in ("'nowhere.md'", "'#nowhere'", "- lost.md")] == [True] * 3


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site on loopback."""
    with web_server(site) as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_search_finds_a_page_and_asks_no_other_host(address: str, scheme: Any):
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        page.set_default_timeout(DEADLINE_S * 1000)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/index.html")
        page.locator("input.md-search__input").fill("duplicate-keys")
        page.locator(".md-search-result__link").first.press("Enter")
        page.wait_for_url(re.compile(r"checks\.html"))
        for name in ("quickstart", "tutorials/slow", "cli", "changelog"):
            page.goto(f"{address}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") == 1280, name
            assert serious(page) == [], name
        assert asked
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
