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
from made_runs import START, failure, rollout, write
from starlette.testclient import TestClient
from viewing import page_at, viewing, wait_for

from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import read_groups

Json = dict[str, Any]

MARK = re.compile(r'<a href="([^"]+)" tabindex="-1" aria-label="([^"]+)">')
ROW = re.compile(r'<tr><th scope="row"><a href="([^"]+)">([^<]*)</a></th><td class="num">([\d,]+)</td>')
AMOUNT = re.compile(r"([\d,]+) (?:rollout|failure)s?(?: finished)?$")


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
    kinds = ("reward", "mean reward", "pass@", "output tokens", "finished", "failure")
    assert {kind: sum(kind in label for _, label in marks) > 1 for kind in kinds} == dict.fromkeys(kinds, True)
    assert {label: listed(messy_client, href) for href, label in marks} == {label: amount(label) for _, label in marks}


def test_a_mark_is_in_the_table_behind_its_picture_too(messy_client: TestClient):
    text = messy_client.get("/run/r").text
    behind = {
        href
        for table in re.findall(r'<details class="behind">.*?</details>', text, re.S)
        for href in re.findall(r'href="([^"]+)"', table)
    }
    assert {href for href, _ in MARK.findall(text)} == behind


@pytest.mark.parametrize(
    "by",
    ["kind", "level of it", "agent", "outcome", "tool", "tokens", "total_s", "seed", "extracted_answer", "n", "check"],
)
def test_rewards_by_a_field_agree_with_the_lists_and_with_the_metrics(messy_client: TestClient, messy: Path, by: str):
    address = f"/run/r?by={quote(by)}"
    page = wait_for(messy_client, address, f"Rewards by {by}")
    section = messy_client.get(address).text.partition('<section id="by"')[2].partition("</section>")[0]
    rows = [(href, unescape(name), int(count.replace(",", ""))) for href, name, count in ROW.findall(section)]
    assert len(rows) > (0 if by in ("outcome", "tool") else 1), page.words
    assert [listed(messy_client, href) for href, _, _ in rows] == [count for *_, count in rows]
    if by in ("kind", "agent", "outcome"):
        groups = read_groups([messy], MetricsSettings(by=by))["groups"]
        means = {each["group"]: f"{each['fields']['reward']['mean']:.3f}" for each in groups}
        shown = dict(re.findall(r'<a href="[^"]+">([^<]*)</a></th>.*?<b>([\d.]+)</b>', section))
        assert {unescape(name): mean for name, mean in shown.items()} == means


def test_a_field_to_group_by_that_is_not_there_is_explained(messy_client: TestClient):
    assert 'by: no field "knd"; did you mean "kind"' in page_at(messy_client, "/run/r?by=knd").words
    assert "has too many different values" in page_at(messy_client, "/run/r?by=key").words
    page = page_at(messy_client, "/run/r?by=%3Cscript%3E")
    assert 'by: no field "<script>"' in page.words
    assert [attrs for tag, attrs in page.tags if tag == "script" and "src" not in attrs] == []


def test_the_numbers_at_the_top_are_those_of_the_metrics(messy_client: TestClient, messy: Path):
    run = read_groups([messy])["run"]
    reward, once = run["fields"]["reward"], run["rates"]["pass@1"]
    words = page_at(messy_client, "/run/r").words
    assert f"mean reward {reward['mean']:.3f} {reward['low']:.3f} to {reward['high']:.3f} (95%)" in words
    assert f"pass@1 {once['value']:.1%} {once['low']:.1%} to {once['high']:.1%} (95%)" in words
    assert "2 agents" in words
    assert "model smollm2-135m" in words


def test_a_run_in_which_tasks_have_different_numbers_of_rollouts_says_both_means(tmp_path: Path):
    rows = [
        rollout(task, repeat, Random(3)) | {"reward": float(task == 0)}
        for task in (0, 1)
        for repeat in range(3 - 2 * task)
    ]
    files = [write(tmp_path / f"{name}.jsonl", rows) for name in "ab"]
    with viewing(*files) as client:
        words = page_at(client, "/run/a").words
        assert "is over 4 rollouts: 0.75. With every task weighed alike it is 0.5, over 2 tasks" in words
        compared = wait_for(client, "/compare?a=a&b=b", "2 tasks are in both runs")
    assert "reward 0.5 over all rollouts 0.75" in compared.words


def test_numbers_given_with_the_tasks_are_described_and_not_averaged(messy_client: TestClient, messy: Path):
    words = page_at(messy_client, "/run/r").words
    means, given = words.partition(" Means ")[2].partition("Given with the tasks")[::2]
    assert "seed 0 to 39, 40 values" in given
    assert "level of it 0 to 2, 3 values" in given
    assert not re.search(r"\bseed \d", means)
    assert "accuracy 0." in means
    assert "seed" in read_groups([messy])["metrics"]  # the file of metrics has every number


def test_rows_that_do_not_say_what_was_scored_have_all_their_numbers_averaged(tmp_path: Path):
    rows = [rollout(task, 0, Random(task)) | {"seed": task} for task in range(5)]
    for row in rows:
        del row["meta"]["scored"]
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        words = wait_for(client, "/run/r", "tokens_per_s").words
    assert "seed 2" in words
    assert "Given with the tasks" not in words


def test_tools_have_their_calls_failures_and_rewards(tmp_path: Path):
    rows = [rollout(task, 0, Random(task)) | {"reward": task % 2} for task in range(6)]
    rows[1]["output"][1]["content"] = "Error: division by zero"
    rows[2]["output"][0]["tool_calls"].append({"id": "x", "name": "search", "arguments": "{}"})
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        page = wait_for(client, "/run/r", "mean reward with it")
        hrefs = [link for link in page.links() if "tool%3D" in link]
        assert [listed(client, href) for href in hrefs] == [6, 1]
    assert "calculator 6 6 1 16.7% 0.5 search 1 1 0 0" in page.words


def test_every_finding_leads_to_all_of_its_rollouts(tmp_path: Path):
    rows = [rollout(task, 0, Random(task)) for task in range(30)]
    for row in rows[:12]:
        row["response"]["content"] = row["output"][2]["content"] = ""
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        page = wait_for(client, "/run/r", "show all")
        links = [link for link in page.links() if "check%3D" in link]
        said = [int(each) for each in re.findall(r"show all (\d+) rollout", page.words)]
        assert [listed(client, link) for link in links] == said
        assert 12 in said


def test_pictures_over_time_come_from_the_profile_and_load_is_shown_where_it_is_known(messy_client: TestClient):
    labels = [attrs.get("aria-label") or "" for tag, attrs in page_at(messy_client, "/run/r").tags if tag == "svg"]
    assert any(label.startswith("In flight, rollouts: 16 to 16") for label in labels)
    assert any(label.startswith("Event-loop lag, the longest: 1.0 ms") for label in labels)
    assert any(label.startswith("Failures over time: 27") for label in labels)


def test_a_run_without_rewards_times_or_tasks_has_no_empty_pictures(tmp_path: Path):
    row: Json = {"responses_create_params": {"input": "x"}, "response": {"content": "y"}}
    with viewing(write(tmp_path / "r.jsonl", [row])) as client:
        page = wait_for(client, "/run/r", "Metrics")
    assert [attrs for tag, attrs in page.tags if tag == "svg" and "picture" in (attrs.get("class") or "")] == []
    assert "mean reward –" in page.words or "– mean reward" in page.words


def test_a_filter_in_an_address_can_be_typed_again(messy_client: TestClient):
    text = messy_client.get("/run/r?by=kind").text
    section = text.partition('<section id="by"')[2].partition("</section>")[0]
    wheres = [parse_qs(urlsplit(unescape(href)).query)["q"][0] for href, _, _ in ROW.findall(section)]
    assert 'kind="odd \\"\\\\" -reward:none' in wheres
