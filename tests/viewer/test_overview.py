"""The overview: charts whose every mark leads to its rollouts, and numbers that agree with the other pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import START, failure, rollout, write
from tests.support.viewing import page_at, viewing, wait_for
from velodrome.index.pictures import Group
from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import read_groups
from velodrome.viewer.pages.links import Links
from velodrome.viewer.pages.run_charts import course

Json = dict[str, Any]

MARK = re.compile(r'<a href="([^"]+)" tabindex="-1" aria-label="([^"]+)">')
ROW = re.compile(r'<tr><th scope="row"><a href="([^"]+)">([^<]*)</a></th><td class="num">([\d,]+)</td>')
AMOUNT = re.compile(r"([\d,]+) rollouts?$")


def messy_rows() -> list[Json]:
    """Rollouts of several kinds, agents and times; some have no reward, no key, no time or no tokens."""
    rng = Random(7)
    rows = []
    for place in range(240):
        row = rollout(place % 40, place // 40, rng, at=START + place * 0.7 + (5000 if place > 120 else 0))
        row |= {
            "kind": ("sum", "word", "a b:c", 'odd "\\')[place % 4],
            "level of it": place % 40 % 3,
            "seed": place % 40,
        }
        row["meta"]["agent"] = f"agent-{place % 2}"
        if place % 17 == 0:
            del row["reward"]
            row["meta"]["deferred"] = True
        if place % 19 == 0:
            del row["meta"]["key"], row["meta"]["finished_at"]
        if place % 23 == 0:
            del row["usage"]
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("messy") / "r.jsonl", messy_rows())
    failures = [failure(task + 100, 1, at=START + task * 3) for task in range(20)]
    failures += [failure(task + 200, 1) | {"boundary": f"odd-{task}"} for task in range(7)]
    write(path.with_name("r.failures.jsonl"), failures)
    return path


@pytest.fixture(scope="module")
def messy_client(messy: Path) -> Iterator[TestClient]:
    with viewing(messy) as client:
        wait_for(client, "/run/r", "Rollout Total")
        wait_for(client, "/run/r", "calculator")
        yield client


def listed(client: TestClient, href: str) -> int:
    """How many rollouts a list says there are."""
    words = page_at(client, unescape(href)).words
    tally = re.search(r"([\d,]+) rollouts? match(?:es)?", words)
    assert tally, (href, words[:300])
    return int(tally[1].replace(",", ""))


def amount(text: str) -> int:
    found = AMOUNT.search(unescape(text))
    assert found, text
    return int(found[1].replace(",", ""))


def test_every_bar_and_point_leads_to_as_many_rollouts_as_it_says(messy_client: TestClient):
    marks = MARK.findall(messy_client.get("/run/r").text)
    tables = re.findall(r'<details class="behind">.*?</details>', messy_client.get("/run/r").text, re.S)
    assert {href for href, _ in marks} == {href for each in tables for href in re.findall(r'href="([^"]+)"', each)}
    kinds = ("reward", "mean reward", "pass@")
    assert {kind: sum(kind in label for _, label in marks) > 1 for kind in kinds} == dict.fromkeys(kinds, True)
    assert {label: listed(messy_client, href) for href, label in marks} == {label: amount(label) for _, label in marks}


@pytest.mark.parametrize("by", ["kind", "outcome", "tool", "tokens"])
def test_rewards_by_a_field_agree_with_the_lists_and_with_the_metrics(messy_client: TestClient, messy: Path, by: str):
    address = f"/run/r?by={quote(by)}"
    wait_for(messy_client, address, f"Rewards by {by}")
    section = messy_client.get(address).text.partition('<section id="by"')[2].partition("</section>")[0]
    rows = [(href, unescape(name), int(count.replace(",", ""))) for href, name, count in ROW.findall(section)]
    assert len(rows) > (0 if by in ("outcome", "tool") else 1)
    assert [listed(messy_client, href) for href, _, _ in rows] == [count for *_, count in rows]
    wheres = [parse_qs(urlsplit(unescape(href)).query)["q"][0] for href, _, _ in rows]
    assert ('kind="odd \\"\\\\" -reward:none' in wheres) == (by == "kind")  # which can be typed again
    if by in ("kind", "outcome"):
        groups = read_groups([messy], MetricsSettings(by=by))["groups"]
        means = {each["group"]: f"{each['fields']['reward']['mean']:.3f}" for each in groups}
        shown = dict(re.findall(r'<a href="[^"]+">([^<]*)</a></th>.*?<b>([\d.]+)</b>', section))
        assert {unescape(name): mean for name, mean in shown.items()} == means


@pytest.mark.parametrize(
    ("between", "low", "high"), [((0.0, 1.0), 0.0, 1.0), ((-1.0, 1.0), -0.1076, 1.0976)], ids=["shares", "others"]
)
def test_the_band_of_rewards_within_0_and_1_and_its_axis_stay_there(
    between: tuple[float, float], low: float, high: float
):
    groups = [Group((at, at + 1.0), "", 20, mean, 0.06) for at, mean in enumerate((0.01, 0.5, 0.98))]
    picture = course(groups, Links("r"), between)
    assert picture is not None
    assert [picture["marks"][0].low, picture["marks"][-1].high] == pytest.approx([low, high])
    assert [float(tick) for tick in picture["ticks"]] == pytest.approx([high, (low + high) / 2, low], abs=0.01)


def test_tools_have_their_calls_failures_and_rewards(tmp_path: Path):
    rows = [rollout(task, 0, Random(task)) | {"reward": task % 2} for task in range(6)]
    rows[1]["output"][1]["content"] = "Error: division by zero"
    rows[2]["output"][0]["tool_calls"].append({"id": "x", "name": "search", "arguments": "{}"})
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        page = wait_for(client, "/run/r", "mean reward with it")
        hrefs = [link for link in page.links() if "tool%3D" in link]
        assert [listed(client, href) for href in hrefs] == [6, 1]
    assert "calculator 6 6 1 16.7% 0.5 search 1 1 0 0" in page.words


def test_a_run_without_rewards_times_or_tasks_has_no_empty_pictures(tmp_path: Path):
    row: Json = {"responses_create_params": {"input": "x"}, "response": {"content": "y"}}
    with viewing(write(tmp_path / "r.jsonl", [row])) as client:
        page = wait_for(client, "/run/r", "Metrics")
    assert [attrs for tag, attrs in page.tags if tag == "svg" and "picture" in (attrs.get("class") or "")] == []
