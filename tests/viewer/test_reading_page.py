"""The page of one rollout as it is read: strip, folds, raw, parts of long ones, find, and what can be taken along."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import HOSTILE, failure, rollout, write
from tests.support.parsed_page import Page
from tests.support.viewing import page_at, viewing
from velodrome import ScriptedModel
from velodrome.serving.scripted import ScriptedServer
from velodrome.viewer.transcript import transcript

Json = dict[str, Any]

LONG = 250  # turns


def talk(*made: Json, **fields: Any) -> Json:
    return {"output": list(made), "reward": 1, "meta": {"key": "a/0", "scored": ["reward"]}, **fields}


def call(name: str = "sh", result: Any = "ok", **arguments: Any) -> list[Json]:
    calls = [{"id": "c", "name": name, "arguments": orjson.dumps(arguments).decode()}]
    return [{"role": "assistant", "tool_calls": calls}, {"role": "tool", "tool_call_id": "c", "content": result}]


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def long_row() -> Json:
    made = [each for turn in range(LONG) for each in call(result=f"result {turn}", command=f"step {turn}")]
    made[-1]["content"] = "x" * 80_000 + " needle " + "y" * 80_000
    tree = [["model", turn * 2000, 1000, {}, []] for turn in range(LONG)]
    tree += [["tool:sh", turn * 2000 + 1000, 1000, {}, []] for turn in range(LONG)]
    meta = {"key": "long/0", "timing": {"total_s": LONG / 500, "tree": tree}}
    return talk(*made, responses_create_params={"input": "Go."}, meta=meta)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A viewer over one long rollout."""
    with viewing(write(tmp_path_factory.mktemp("long") / "r.jsonl", [long_row()])) as client:
        yield client


def shown(tmp_path: Path, row: Json, query: str = "") -> Page:
    with viewing(write(tmp_path / "r.jsonl", [row])) as client:
        return page_at(client, f"/run/r/rollout/1{query}")


def articles(page: Page) -> list[str]:
    return [attrs["id"] or "" for tag, attrs in page.tags if tag == "article"]


def part(text: str, start: str, end: str) -> str:
    return text[text.index(start) : text.index(end)]


def test_the_strip_tells_what_was_asked_and_expected_how_the_answer_ends_and_what_it_earned(tmp_path: Path):
    request = {"input": [{"role": "system", "content": "S"}, {"role": "user", "content": "What is 7 times 8?"}]}
    row = talk(assistant("Begin. " + "I compute it. " * 200 + "So it is 56."), responses_create_params=request)
    row |= {"expected": 56, "accuracy": 0.25, "right": True, "said": "56", "reward": 0.25}
    row["meta"]["scored"] = ["reward", "accuracy", "right", "said"]
    page = shown(tmp_path, row)
    strip = part(page.words, "Asked", "Find in this rollout")
    assert strip.startswith("Asked What is 7 times 8? Expected answer 56 Final answer …")
    assert "So it is 56. Reward reward 0.25 accuracy 0.25 right yes said 56" in strip
    assert ("Begin" in strip, {"#m2", "#m3"} <= {*page.links()}) == (False, True)


def test_what_is_drawn_has_its_raw_form_and_an_address_shows_all_of_it_raw(tmp_path: Path):
    row = talk(assistant("It is **four**."))
    drawn, raw = shown(tmp_path, row), shown(tmp_path, row, "?raw=1")
    classes = [attrs.get("class") for _, attrs in drawn.tags]
    assert [classes.count(name) for name in ("drawn", "source", "as-raw")] == [2, 1, 1]  # one of them in the strip
    assert ("/run/r/rollout/1?raw=1" in drawn.links(), "/run/r/rollout/1" in raw.links()) == (True, True)
    assert ("source" in [attrs.get("class") for _, attrs in raw.tags], "**four**" in raw.words) == (False, True)


def test_a_long_result_is_folded_and_says_how_much_more_there_is(tmp_path: Path):
    text = "\n".join(f"line {at} " + "." * 50 for at in range(216))
    page = shown(tmp_path, talk(*call(result=text)))
    assert ("+ 212 lines, 12.8 KB" in page.words, "line 215" in page.words) == (True, True)
    folds = [attrs for tag, attrs in page.tags if tag == "details" and attrs.get("class") == "fold"]
    assert folds == [{"class": "fold"}]


def test_the_other_players_are_shown_as_conversations(tmp_path: Path):
    other = {"responses_create_params": {"input": "You are the taker."}, "output": [assistant("I take it.")]}
    players = {"giver": {"output": [assistant("I give it.")]}, "taker": other, "odd": 7}
    row = talk(assistant("I give it."), players=players)
    row["meta"]["scored"] = ["reward", "players"]
    page = shown(tmp_path, row)
    assert "players" not in part(page.words, "Score", "Raw JSON")
    words = part(page.words, "The conversation of taker 2 messages", "Score")
    assert ("You are the taker." in words, "I take it." in words) == (True, True)
    assert articles(page) == ["m1", "p1-m1", "p1-m2"]


def test_a_long_conversation_has_pages_and_an_outline_over_all_of_it(long: TestClient):
    page = page_at(long, "/run/r/rollout/1?at=212")
    assert articles(page) == [f"m{number}" for number in range(201, LONG + 2)]
    outline = [link for link in page.links() if re.search(r"#m\d+$", link)]
    assert {f"/run/r/rollout/1?at={number}#m{number}" for number in range(1, 201)} <= {*outline}
    assert "#m251" in outline
    first = page_at(long, "/run/r/rollout/1")
    assert (articles(first)[-1], "/run/r/rollout/1?at=101#m101" in first.links()) == ("m100", True)
    odd = {"0": "m1", "99999": "m201", "-3": "m1", "x": "m1", "9" * 20: "m1", "²": "m1"}
    assert {at: articles(page_at(long, f"/run/r/rollout/1?{urlencode({'at': at})}"))[0] for at in odd} == odd


def test_find_leads_to_the_part_that_has_it_and_shows_a_cut_text_whole(long: TestClient):
    page = page_at(long, "/run/r/rollout/1?find=NEEDLE")
    assert (articles(page)[0], "1 found" in page.words, "x needle y" in page.words) == ("m201", True, True)
    cut = page_at(long, "/run/r/rollout/1?at=212").words
    assert ("show all 160,008" in cut, "x needle y" in cut) == (True, False)
    everywhere = page_at(long, f"/run/r/rollout/1?{urlencode({'find': 'step 24'})}")
    assert (articles(everywhere)[0], "11 found" in everywhere.words) == ("m1", True)


def test_a_span_of_the_waterfall_leads_to_its_message_on_whatever_page_it_is(long: TestClient):
    page = page_at(long, "/run/r/rollout/1")
    bars = [attrs for tag, attrs in page.tags if tag == "a" and attrs.get("tabindex") == "-1"]
    assert len(bars) == 2 * LONG
    assert (bars[0]["href"], bars[LONG]["href"]) == ("#m2", "#m2-1")
    assert bars[-1]["href"] == "/run/r/rollout/1?at=251#m251-1"


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Path]]:
    """A viewer over a rollout of a calculator and one with hostile names, and the file."""
    odd = talk(*call(name="a`b", result="```\nfence"), responses_create_params={"input": HOSTILE})
    odd["meta"]["key"] = "it's/0 $(x)"
    path = write(tmp_path_factory.mktemp("taken") / "r.jsonl", [rollout(1, 0, Random(1)), odd])
    write(path.with_name("r.failures.jsonl"), [failure(2, 1)])
    path.with_name("r.run.json").write_text('{"runs": [{"command": "velo collect c.yaml"}]}')
    with viewing(path) as client:
        yield client, path


def copied(client: TestClient, name: str, label: str) -> str:
    """The text that the menu offers under a label."""
    text = client.get(f"/run/r/rollout/{name}").text
    [found] = re.findall(rf'aria-label="{label}">(.*?)</pre>', text, re.DOTALL)
    return "".join(Page(found).text)


async def behind_a_server(run: Callable[[], str]) -> str:
    """What this gives, while OPENAI_BASE_URL is a model behind HTTP."""
    async with ScriptedServer(ScriptedModel(answers=["asked again"])) as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_BASE_URL", server.url)
            patch.setenv("OPENAI_API_KEY", "sk-hidden")
            return await asyncio.to_thread(run)


@pytest.mark.slow
def test_the_curl_of_a_rollout_sends_its_request_and_holds_no_secret(taken: tuple[TestClient, Path]):
    client, _ = taken
    command = copied(client, "1", "Copy as curl")
    assert 'Bearer $OPENAI_API_KEY"' in command
    script = ["bash", "-c", f'curl() {{ command curl -s "$@"; }}\n{command}']
    asked = behind_a_server(lambda: subprocess.check_output(script, text=True))
    assert orjson.loads(asyncio.run(asked))["output"][0]["content"][0]["text"] == "asked again"
    body = orjson.loads(copied(client, "2", "Copy as curl").splitlines()[-2])
    assert body == {"model": "MODEL", "input": HOSTILE}
    again = copied(client, "2", "Run this one again")
    assert shlex.split(again) == ["velo", "collect", "c.yaml", "--only", "it's/0 $(x)", "--no-save"]


def test_a_rollout_is_taken_along_as_json_text_and_a_trace(taken: tuple[TestClient, Path]):
    client, _ = taken
    page = page_at(client, "/run/r/rollout/1")
    files = {attrs["download"]: attrs["href"] for tag, attrs in page.tags if attrs.get("download")}
    assert [*files] == ["task-001-0.json", "task-001-0.txt", "task-001-0.trace.json"]
    assert client.get(files["task-001-0.json"] or "").json() == rollout(1, 0, Random(1))
    assert client.get(files["task-001-0.txt"] or "").text == transcript(rollout(1, 0, Random(1)))
    events = client.get(files["task-001-0.trace.json"] or "").json()["traceEvents"]
    spans = [event["name"] for event in events if event["ph"] == "X"]
    assert sorted(spans) == ["model", "model", "queue", "rollout", "tool:calculator", "tools", "verify"]
    for name in ("2.trace", "f1.sh", "1.exe", "7.txt"):
        assert client.get(f"/run/r/rollout/{name}").status_code == 404
