"""The page of a profile: complete, closed to the outside, and harmless whatever the file said."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from copy import deepcopy
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from parsed_page import Page

from velodrome.viewer.pages.profile_page import MARK, profile_page

Json = dict[str, Any]

HOSTILE = (
    "</style></title><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>\" ' &{{ 7*7 }}\x00\n"
)


def spoiled(profile: Json) -> Json:
    """The profile with a hostile text wherever a file has a say, and far too much of everything."""
    spoiled = deepcopy(profile)
    for node in spoiled["tree"]:
        node["name"] = node["part"] = HOSTILE
    spoiled["tree"] *= 50
    spoiled["tools"] = [{**spoiled["tools"][0], "name": HOSTILE}] * 5000
    for slow in spoiled["slowest"]:
        slow |= {"key": HOSTILE * 1000, "file": HOSTILE, "tree": [*slow["tree"], *garbage()]}
    spoiled["slowest"] *= 100
    spoiled["notes"] = [HOSTILE * 1000] * 5000
    advice = [{"change": HOSTILE, "override": HOSTILE * 100, "predicted_rollouts_per_s": 1.0}] * 500
    spoiled["verdict"] |= {"what": HOSTILE, "paragraph": HOSTILE * 1000, "evidence": [HOSTILE * 100] * 500}
    spoiled["verdict"]["advice"] = advice
    return spoiled


def garbage() -> list[Any]:
    deep: list[Any] = []
    for _ in range(200):
        deep = [[HOSTILE, 0, 1, {HOSTILE: 1}, deep]]
    odd = [7, None, {}, ["short"], ["model", "soon", 5, {}, []], ["model", 0, 5, 7, 7], [None, 1e300, 1, {}, []]]
    return [*odd, *deep, *[[HOSTILE, 0, 1, {}, []]] * 5000]


def charts(page: Page) -> list[str | None]:
    return [attrs["class"] for tag, attrs in page.tags if tag == "svg" and attrs.get("role") == "img"]


def test_the_page_has_everything_the_profile_has_and_the_verdict_first(profile: Json):
    profile["notes"] = ["rollouts.jsonl:7: not a rollout; it is not counted"]
    text = profile_page(profile, title="rollouts.jsonl")
    page = Page(text)
    assert (page.crossed, page.unclosed) == ([], [])
    [advice, *_] = profile["verdict"]["advice"]
    for words in (
        "Bounded by the concurrency limit",
        profile["verdict"]["paragraph"],
        *profile["verdict"]["evidence"],
        advice["change"],
        advice["override"],
        "111 rollouts",
        "Model bottleneck",
        "Event-loop lag",
        profile["slowest"][1]["key"],
        "calculator 111",
        profile["notes"][0],
    ):
        assert " ".join(words.split()) in page.words, words
    kinds = charts(page)
    assert [kinds.count(f"chart {kind}") for kind in ("line", "histogram", "waterfall")] == [
        4,
        len([part for part in profile["histograms"] if part in ("total", "model", "tools", "verify", "queue")]),
        min(len(profile["slowest"]), 10),
    ]
    assert text.startswith(f"<!doctype html>\n{MARK}\n")
    assert text.index("<h1>") < text.index("What to change") < text.index("<table") < text.index('class="chart line"')
    assert text == profile_page(deepcopy(profile), title="rollouts.jsonl")


def test_nothing_on_the_page_comes_from_outside_or_runs(profile: Json):
    page = profile_page(profile, title="rollouts.jsonl")
    assert re.search(r"https?:|//[a-z]|url\(|@import|javascript:", page) is None
    tags = Page(page).tags
    assert {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "object", "base", "form", "a"} == set()
    assert [attrs for _, attrs in tags if {"style", "src", "href"} & attrs.keys()] == []
    policy = next(attrs["content"] for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy")
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_hostile_texts_are_shown_bounded_and_do_nothing(profile: Json):
    text = profile_page(spoiled(profile), title=HOSTILE * 1000)
    clean, page = Page(profile_page({**profile, "notes": ["x"]}, title=HOSTILE)), Page(text)
    assert len(text.encode()) < 1_000_000
    assert (page.crossed, page.unclosed) == ([], [])
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in clean.tags}
    names = {name for _, attrs in page.tags for name in attrs}
    assert {name for name in names if name.startswith("on")} == set()
    assert "alert(1)" in page.words
    assert "&{{ 7*7 }}" in page.words


def test_a_profile_of_an_old_file_has_a_page_without_what_is_not_known(profile: Json):
    profile["series"] = {"start": 0.0, "every_s": 1.0, "at_s": [0], "rollouts_per_s": [3.0], "in_flight": [None]}
    profile["series"] |= {"cpu": [None], "lag_ms": [None]}
    profile["load"] = {"in_flight_mean": None, "limit": None}
    profile["slowest"] = [{"key": "a/0", "line": 1, "total_s": 0.2, "reward": None, "tree": []}]
    page = Page(profile_page(profile, title="old.jsonl"))
    assert "Its spans are not in the file." in page.words
    assert (charts(page).count("chart line"), "chart waterfall" in charts(page)) == (1, False)


def test_a_profile_of_nothing_says_that_it_cannot_tell():
    verdict = {"bound": "unknown", "what": "", "part": None, "paragraph": "No rollouts.", "evidence": [], "advice": []}
    empty: Json = {"tree": [], "load": {}, "series": {}, "histograms": {}, "tools": [], "slowest": [], "notes": []}
    empty |= {"rollouts": 0, "failed": 0, "active_s": 0.0, "rollouts_per_s": 0.0, "verdict": verdict}
    page = Page(profile_page(empty, title="x"))
    assert "Too little to tell what bounds throughput No rollouts." in page.words


CHROMIUM = Path("/usr/bin/chromium")


@pytest.mark.slow
def test_a_browser_opens_it_without_errors_requests_or_sideways_scrolling(profile: Json, tmp_path: Path):
    if os.environ.get("CI") != "true":  # there, what is missing is a failure
        pytest.importorskip("playwright.sync_api")
        if not CHROMIUM.exists():
            pytest.skip("no Chromium on this machine")
    playwright = import_module("playwright.sync_api")
    path = tmp_path / "page.html"
    path.write_text(profile_page(spoiled(profile), title="rollouts.jsonl"))
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
        for scheme, painted in (("light", "rgb(250, 250, 248)"), ("dark", "rgb(19, 21, 22)")):
            for width in (1280, 390):
                messages: list[str] = []
                requests: list[str] = []
                opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                opened.on("console", lambda message, into=messages: into.append(message.text))
                opened.on("pageerror", lambda error, into=messages: into.append(str(error)))
                opened.on("request", lambda request, into=requests: into.append(request.url))
                opened.goto(path.as_uri())
                assert opened.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
                assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == painted
                assert (messages, requests) == ([], [path.as_uri()])
                opened.close()
        browser.close()
