"""The page of a profile: complete, closed to the outside, and harmless whatever the file said."""

from __future__ import annotations

import re
from base64 import b64encode
from copy import deepcopy
from hashlib import sha256
from typing import Any

from tests.support.parsed_page import Page
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
    spoiled["tree"] *= 20
    spoiled["tools"] = [{**spoiled["tools"][0], "name": HOSTILE}] * 1000
    for slow in spoiled["slowest"]:
        slow |= {"key": HOSTILE * 1000, "file": HOSTILE, "tree": [*slow["tree"], *garbage()]}
    spoiled["slowest"] *= 100
    spoiled["notes"] = [HOSTILE * 1000] * 1000
    advice = [{"change": HOSTILE, "override": HOSTILE * 100, "predicted_rollouts_per_s": 1.0}] * 500
    spoiled["verdict"] |= {"what": HOSTILE, "paragraph": HOSTILE * 1000, "evidence": [HOSTILE * 100] * 500}
    spoiled["verdict"]["advice"] = advice
    return spoiled


def garbage() -> list[Any]:
    deep: list[Any] = []
    for _ in range(200):
        deep = [[HOSTILE, 0, 1, {HOSTILE: 1}, deep]]
    odd = [7, None, {}, ["short"], ["model", "soon", 5, {}, []], ["model", 0, 5, 7, 7], [None, 1e300, 1, {}, []]]
    return [*odd, *deep, *[[HOSTILE, 0, 1, {}, []]] * 1000]


def charts(page: Page) -> list[str | None]:
    return [attrs["class"] for tag, attrs in page.tags if tag == "svg" and attrs.get("role") == "img"]


def test_the_page_has_everything_the_profile_has_and_the_verdict_first(profile: Json):
    profile["notes"] = ["rollouts.jsonl:7: not a rollout; it is not counted"]
    text = profile_page(profile, title="rollouts.jsonl")
    page = Page(text)
    assert (page.crossed, page.unclosed) == ([], [])
    [advice, *_] = profile["verdict"]["advice"]
    said = [profile["verdict"]["paragraph"], *profile["verdict"]["evidence"], advice["change"], advice["override"]]
    shown = ["Bounded by the concurrency limit", "111 rollouts", "Model bottleneck", "Event-loop lag", "calculator 111"]
    for words in (*said, *shown, profile["slowest"][1]["key"], profile["notes"][0]):
        assert " ".join(words.split()) in page.words, words
    kinds = charts(page)
    counts = [kinds.count(kind) for kind in ("picture curve", "picture bars", "chart waterfall")]
    assert counts == [4, len(profile["histograms"]), min(len(profile["slowest"]), 10)]
    assert text.startswith(f"<!doctype html>\n{MARK}\n")
    assert (
        text.index("<h1>") < text.index("What to change") < text.index("<table") < text.index('class="picture curve"')
    )


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


def test_a_profile_of_an_old_file_or_of_nothing_has_a_page_without_what_is_not_known(profile: Json):
    profile["series"] |= {"cpu": [None], "lag_ms": [None], "in_flight": [None], "at_s": [0], "rollouts_per_s": [3.0]}
    profile["load"] = {"in_flight_mean": None, "limit": None}
    profile["slowest"] = [{"key": "a/0", "line": 1, "total_s": 0.2, "reward": None, "tree": []}]
    page = Page(profile_page(profile, title="old.jsonl"))
    assert (charts(page).count("picture curve"), "chart waterfall" in charts(page)) == (1, False)
    verdict = {"bound": "unknown", "what": "", "part": None, "paragraph": "No rollouts.", "evidence": [], "advice": []}
    empty: Json = {"tree": [], "load": {}, "series": {}, "histograms": {}, "tools": [], "slowest": [], "notes": []}
    empty |= {"rollouts": 0, "failed": 0, "active_s": 0.0, "rollouts_per_s": 0.0, "verdict": verdict}
    page = Page(profile_page(empty, title="x"))
    assert "Too little to tell what bounds throughput No rollouts." in page.words
