"""The page of one rollout as it is read: strip, folds, raw, parts of long ones, find, and what can be taken along."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from made_runs import HOSTILE, failure, rollout, write
from parsed_page import Page
from starlette.testclient import TestClient
from viewing import page_at, viewing

from velodrome import ScriptedModel
from velodrome.serving.scripted import ScriptedServer

Json = dict[str, Any]

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
PICTURE = f"data:image/png;base64,{b64encode(PNG).decode()}"
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
    assert "Begin" not in strip
    assert {"#m2", "#m3"} <= {*page.links()}


def test_the_reason_of_a_failure_comes_first_and_in_full(tmp_path: Path):
    reason = "it broke: " + "because of this " * 2000 + "THE END"
    path = write(tmp_path / "r.jsonl", [rollout(1, 1, Random(1))])
    write(tmp_path / "r.failures.jsonl", [failure(1, 1) | {"error": reason}])
    with viewing(path) as client:
        words = page_at(client, "/run/r/rollout/f1").words
    assert words.index("Failed · model attempt 1") < words.index(reason) < words.index("Asked")


def test_what_is_drawn_has_its_raw_form_and_an_address_shows_all_of_it_raw(tmp_path: Path):
    row = talk(assistant("It is **four**."))
    drawn, raw = shown(tmp_path, row), shown(tmp_path, row, "?raw=1")
    classes = [attrs.get("class") for _, attrs in drawn.tags]
    assert [classes.count(name) for name in ("drawn", "source", "as-raw")] == [2, 1, 1]  # one of them in the strip
    assert "strong" in [tag for tag, _ in drawn.tags]
    assert ("/run/r/rollout/1?raw=1" in drawn.links(), "/run/r/rollout/1" in raw.links()) == (True, True)
    assert "source" not in [attrs.get("class") for _, attrs in raw.tags]
    assert raw.words.count("It is **four**.") >= 2


def test_of_very_much_the_rest_is_drawn_on_request(tmp_path: Path):
    row = talk(*(assistant(f"{at}: " + "**a** $x^2$ `b` " * 300) for at in range(20)))
    page = shown(tmp_path, row)
    links = [link for link in page.links() if "show=" in link]
    assert 0 < len(links) < 19
    assert page.words.count("not drawn, because there is much on this page") == len(links)
    again = shown(tmp_path, row, "?show=m20")
    assert [link for link in again.links() if "show=m20" in link] == []


def test_a_long_result_is_folded_and_says_how_much_more_there_is(tmp_path: Path):
    text = "\n".join(f"line {at} " + "." * 50 for at in range(216))
    page = shown(tmp_path, talk(*call(result=text)))
    assert "+ 212 lines, 12.8 KB" in page.words
    folds = [attrs for tag, attrs in page.tags if tag == "details" and attrs.get("class") == "fold"]
    assert folds == [{"class": "fold"}]
    assert "line 215" in page.words
    assert "fold" not in [attrs.get("class") for _, attrs in shown(tmp_path, talk(*call(result="short"))).tags]


def test_pictures_and_files_are_shown_in_messages_and_results(tmp_path: Path):
    parts = [
        {"type": "input_image", "image_url": PICTURE},
        {"type": "input_image", "image_url": "https://example.org/far.png"},
        {"type": "input_file", "filename": "report.pdf", "file_data": "data:application/pdf;base64,QUJD"},
    ]
    row = talk(*call(result=parts), responses_create_params={"input": [{"role": "user", "content": parts[:1]}]})
    page = shown(tmp_path, row)
    assert [attrs["src"] for tag, attrs in page.tags if tag == "img"] == [PICTURE, PICTURE]
    assert "https://example.org/far.png" in page.links()
    assert "report.pdf · file · 3 bytes" in page.words


def test_the_other_players_are_shown_as_conversations(tmp_path: Path):
    other = {"responses_create_params": {"input": "You are the taker."}, "output": [assistant("I take it.")]}
    row = talk(assistant("I give it."), players={"giver": {"output": [assistant("I give it.")]}, "taker": other})
    row["meta"]["scored"] = ["reward", "players"]
    page = shown(tmp_path, row)
    assert "players" not in part(page.words, "Score", "Raw JSON")
    words = part(page.words, "The conversation of taker", "Score")
    assert words.split()[:6] == ["The", "conversation", "of", "taker", "2", "messages"]
    assert "You are the taker." in words
    assert "I take it." in words
    assert articles(page) == ["m1", "p1-m1", "p1-m2"]


def test_a_long_conversation_has_pages_and_an_outline_over_all_of_it(long: TestClient):
    page = page_at(long, "/run/r/rollout/1?at=212")
    assert articles(page) == [f"m{number}" for number in range(201, LONG + 2)]
    assert "251 messages" in page.words
    outline = [link for link in page.links() if re.search(r"#m\d+$", link)]
    assert {f"/run/r/rollout/1?at={number}#m{number}" for number in range(1, 201)} <= {*outline}
    assert "#m251" in outline
    first = page_at(long, "/run/r/rollout/1")
    assert articles(first)[-1] == "m100"
    assert [link for link in first.links() if link == "/run/r/rollout/1?at=101#m101"]


def test_an_odd_place_in_a_conversation_is_its_beginning_or_its_end(long: TestClient):
    for at, first in (("0", "m1"), ("99999", "m201"), ("-3", "m1"), ("x", "m1"), ("9" * 20, "m1"), ("²", "m1")):
        assert articles(page_at(long, f"/run/r/rollout/1?{urlencode({'at': at})}"))[0] == first, at


def test_find_leads_to_the_part_that_has_it_and_shows_a_cut_text_whole(long: TestClient):
    page = page_at(long, "/run/r/rollout/1?find=NEEDLE")
    assert articles(page)[0] == "m201"
    assert "1 found" in page.words
    assert "x needle y" in page.words
    assert "1× " in part(page.words, "251 messages", "Score")
    cut = page_at(long, "/run/r/rollout/1?at=212")
    assert "characters are left out here · show all 160,008" in cut.words
    assert "x needle y" not in cut.words
    everywhere = page_at(long, f"/run/r/rollout/1?{urlencode({'find': 'step 24'})}")
    assert (articles(everywhere)[0], "11 found" in everywhere.words) == ("m1", True)


def test_a_span_of_the_waterfall_leads_to_its_message_on_whatever_page_it_is(long: TestClient):
    page = page_at(long, "/run/r/rollout/1")
    bars = [attrs for tag, attrs in page.tags if tag == "a" and attrs.get("tabindex") == "-1"]
    assert len(bars) == 2 * LONG
    assert (bars[0]["href"], bars[LONG]["href"]) == ("#m2", "#m2-1")
    assert bars[-1]["href"] == "/run/r/rollout/1?at=251#m251-1"


def test_a_500_message_page_is_light(long: TestClient):
    assert len(long.get("/run/r/rollout/1").content) < 600_000


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Path]]:
    """A viewer over a rollout of a calculator and one with hostile names, and the file."""
    odd = talk(*call(name="a`b", result="```\nfence"), responses_create_params={"input": HOSTILE})
    odd["meta"]["key"] = "it's/0 $(x)"
    path = write(tmp_path_factory.mktemp("taken") / "r.jsonl", [rollout(1, 0, Random(1)), odd])
    write(path.with_name("r.failures.jsonl"), [failure(2, 1)])
    with viewing(path) as client:
        yield client, path


def copied(client: TestClient, name: str, label: str) -> str:
    """The text that the menu offers under a label."""
    text = client.get(f"/run/r/rollout/{name}").text
    [found] = re.findall(rf'aria-label="{label}">(.*?)</pre>', text, re.DOTALL)
    return "".join(Page(found).text)


async def with_model(run: Any) -> str:
    """The output of a program that asks a model behind HTTP."""
    async with ScriptedServer(ScriptedModel(answers=["asked again"])) as server:
        environ = {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-hidden"}
        done = await asyncio.to_thread(subprocess.run, run, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_the_python_of_a_rollout_reads_it_and_asks_again(taken: tuple[TestClient, Path]):
    program = copied(taken[0], "1", "Copy as Python")
    row = rollout(1, 0, Random(1))
    output = asyncio.run(with_model([sys.executable, "-c", program]))
    assert output.splitlines() == [f"{row['reward']} {row['response']['content']}", "asked again"]
    odd = subprocess.run(
        [sys.executable, "-c", copied(taken[0], "2", "Copy as Python")], capture_output=True, text=True
    )
    assert (odd.returncode, odd.stdout) == (0, "1 \n")
    failed = subprocess.run(
        [sys.executable, "-c", copied(taken[0], "f1", "Copy as Python")], capture_output=True, text=True
    )
    assert failed.stdout == f"verify {failure(2, 1)['error']}\n"


def test_the_curl_of_a_rollout_sends_its_request_and_holds_no_secret(taken: tuple[TestClient, Path]):
    command = copied(taken[0], "1", "Copy as curl")
    assert 'Bearer $OPENAI_API_KEY"' in command
    answer = orjson.loads(asyncio.run(with_model(["bash", "-c", f'curl() {{ command curl -s "$@"; }}\n{command}'])))
    assert answer["output"][0]["content"][0]["text"] == "asked again"
    body = orjson.loads(copied(taken[0], "2", "Copy as curl").splitlines()[-2])
    assert body == {"model": "MODEL", "input": HOSTILE}


def test_the_command_that_runs_it_again_names_file_and_key_as_a_shell_reads_them(taken: tuple[TestClient, Path]):
    command = copied(taken[0], "2", "Run this one again")
    assert shlex.split(command) == ["velo", "rerun", str(taken[1]), "it's/0 $(x)"]


def test_a_rollout_is_taken_along_as_json_markdown_and_a_trace(taken: tuple[TestClient, Path]):
    client, _ = taken
    page = page_at(client, "/run/r/rollout/1")
    files = {attrs["download"]: attrs["href"] for tag, attrs in page.tags if attrs.get("download")}
    assert [*files] == ["task-001-0.json", "task-001-0.md", "task-001-0.trace.json"]
    assert client.get(files["task-001-0.json"] or "").json() == rollout(1, 0, Random(1))
    text = client.get(files["task-001-0.md"] or "").text
    assert text.startswith("# task-001/0\n\nReward: ")
    assert "## 4 · assistant\n\nCall of `calculator`:\n\n```\n{" in text
    assert "````\n```\nfence\n````" in client.get("/run/r/rollout/2.md").text
    events = client.get(files["task-001-0.trace.json"] or "").json()["traceEvents"]
    spans = [(event["name"], event["cat"], event["dur"]) for event in events if event["ph"] == "X"]
    total_us = rollout(1, 0, Random(1))["meta"]["timing"]["total_s"] * 1e6
    assert [name for name, _, _ in spans] == ["model", "model", "tools", "tool:calculator", "verify", "queue"]
    assert spans[0][2] == round(0.558 * total_us)


@pytest.mark.parametrize(("name", "status"), [("2.trace", 404), ("f1.sh", 404), ("1.exe", 404), ("7.md", 404)])
def test_what_cannot_be_had_is_said_on_a_page(taken: tuple[TestClient, Path], name: str, status: int):
    assert taken[0].get(f"/run/r/rollout/{name}").status_code == status
