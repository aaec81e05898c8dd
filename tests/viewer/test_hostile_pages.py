"""Rows and folders nobody vouches for: attacks, wrong shapes, a megabyte of text, pipes in the place of files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from tests.support.made_runs import HOSTILE, hostile_row, rollout, write
from tests.support.parsed_page import Page
from tests.support.viewing import ODD, TAGS, harmless, page_at, viewing, wait_for
from velodrome.viewer.runs.training_curves import MOST_PICTURES


def test_what_a_model_says_is_text_wherever_it_stands(tmp_path: Path):
    rows = [hostile_row(f"{HOSTILE}/{repeat}") for repeat in range(2)]
    path = write(tmp_path / "h.jsonl", [*rows, b"{garbage " + HOSTILE.encode()])
    failed = {"key": f"{HOSTILE}/3", "boundary": HOSTILE, "error": HOSTILE, "attempt": HOSTILE}
    write(tmp_path / "h.failures.jsonl", [failed | {"partial": rows[0]["output"]}])
    run = {"runs": [{"finished_at": 1, "stopped": HOSTILE, "requested": 3}]}
    (tmp_path / "h.run.json").write_bytes(orjson.dumps(run))
    with viewing(path, write(tmp_path / "i.jsonl", rows)) as client:
        wait_for(client, "/run/h", "pass@")
        odd = quote(HOSTILE)
        pages = ["", "/rollouts", f"/rollouts?q={odd}&sort={odd}&since={odd}", "/rollout/1?show=m1", "/rollout/f1"]
        pages += ["/tasks", f"/task?id={odd}", "/failures", f"/key/{odd}"]
        others = [
            "/compare?a=h&b=i",
            "/pair?a=h:1&b=h:2",
            f"/{quote(HOSTILE, safe='')}",
            f"/run/{quote(HOSTILE, safe='')}",
        ]
        for address in [*(f"/run/h{page}" for page in pages), *others]:
            answer = client.get(address)
            page = harmless(Page(answer.text))
            assert answer.status_code in (200, 404), (address, page.words)
            assert {tag for tag, _ in page.tags} <= TAGS, address
            assert ODD.findall(answer.text) == [], address
            hrefs = [
                value for _, attrs in page.tags for name, value in attrs.items() if name in ("href", "src", "action")
            ]
            safe = ("/", "#", "https://", "data:image/png;")
            assert [value for value in hrefs if value and not value.startswith(safe)] == [], address
            away = [attrs for tag, attrs in page.tags if (attrs.get("href") or "").startswith("https://")]
            assert [attrs for attrs in away if attrs.get("rel") != "noreferrer noopener"] == [], address


def test_the_way_from_failures_alike_to_their_list_survives_what_cannot_be_seen(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [rollout(1, 0, Random(1))])
    messages = ["\u202e\x00\u200b\x1b\ufeff\U000e0041", "\\u{41} is \u202ehere", "\u200bplain"]
    failed = [{"key": f"t/{at}", "boundary": "tool", "error": text, "attempt": 1} for at, text in enumerate(messages)]
    write(tmp_path / "r.failures.jsonl", failed)
    with viewing(path) as client:
        links = page_at(client, "/run/r/failures").links()
        ways = [link for link in links if "error%3A" in link and "/rollouts?" in link]
        assert len(ways) == 3
        for way in ways:
            answer = client.get(way)
            page = Page(answer.text)
            assert ("1 rollout matches" in page.words, ODD.findall(answer.text)) == (True, [])
            shown = next(attrs["value"] for tag, attrs in page.tags if tag == "input" and attrs.get("name") == "q")
            again = page_at(client, f"/run/r/rollouts?q={quote(shown or '')}")
            assert "1 rollout matches" in again.words


def test_no_box_is_empty_and_what_is_not_known_is_folded_json(tmp_path: Path):
    search = {"type": "web_search_call", "action": {"query": "stamps", "sources": ["a source"] * 40}}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    made = [search, call, {"type": "function_call_output", "call_id": "c", "output": ""}]
    made += [{"role": "assistant", "content": " \n "}, {"role": "user", "content": ""}, {"type": "odd"}]
    path = write(tmp_path / "r.jsonl", [{"output": made, "reward": 1, "meta": {"key": "a/0"}}])
    with viewing(path) as client:
        text = client.get("/run/r/rollout/1").text
        page = page_at(client, "/run/r/rollout/1")
        repeats = page_at(client, "/run/r/task?id=a")
    assert re.findall(r'<div class="text[^>]*>\s*</div>|<article[^>]*>\s*<header>.*?</header>\s*</article>', text) == []
    assert re.search(r'<summary><span class="preview"[^>]*>{\n  &quot;type&quot;: &quot;web_search_call&quot;', text)
    for words in (
        '"query": "stamps"',
        '"type": "odd"',
        "only white space",
        "Result an empty text",
        "User an empty text",
    ):
        assert words in page.words, words
    assert "an empty text" in repeats.words


def test_rows_of_every_wrong_shape_have_pages(tmp_path: Path):
    whole = rollout(1, 0, Random(1))
    rows: list[Any] = [{**whole, name: wrong} for name in whole for wrong in (None, 7, "text", [1], {"a": 1})]
    rows += [{**whole, "meta": {**whole["meta"], name: wrong}} for name in whole["meta"] for wrong in (None, "t", [])]
    rows += [b'{"deep": ' + b"[" * 300 + b"]" * 300 + b"}", b'{"reward": NaN, "response": {"content": "\\ud800"}}']
    rows += [{}, b"7", b"[]"]
    path = write(tmp_path / "r.jsonl", rows)
    failures = [{"key": f"f/{at}", "error": wrong, "timing": wrong} for at, wrong in enumerate((None, 7, [], {}))]
    failures += [{"key": wrong, "error": "lost"} for wrong in (None, 7, [], {})]  # nobody's: no failure of a rollout
    write(tmp_path / "r.failures.jsonl", failures)
    with viewing(path) as client:
        for name in [*map(str, range(1, len(rows) - 1)), "f1", "f2", "f3", "f4"]:
            assert (name, client.get(f"/run/r/rollout/{name}").status_code) == (name, 200)
        for way in ("", "/rollout/9.json", "/task?id=task-001", "/tasks", "/failures", "/rollouts?sort=-reward"):
            assert client.get(f"/run/r{way}").status_code == 200, way
        page_at(client, "/run/r/rollouts?q=state:failed")


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path):
    write(tmp_path / "x.jsonl", [rollout(0, 0, Random(0))])
    for kind in ("notes.jsonl", "run.json", "metrics.json", "profile.json", "progress.json", "failures.jsonl"):
        os.mkfifo(tmp_path / f"x.{kind}")
    for name in ("metrics.jsonl", "settings.json"):
        folder = tmp_path / name[0]
        folder.mkdir()
        (folder / "settings.json").write_text("{}")
        odd = [{"step": at, "phase": [at], "epoch": {}, **{f"m{at}_{n}": n for n in range(50)}} for at in range(9)]
        write(folder / "metrics.jsonl", odd)
        (folder / name).unlink()
        os.mkfifo(folder / name)
    with viewing(tmp_path) as client:
        assert 0 < client.get("/training/s").text.count("<figure") <= MOST_PICTURES
        for address in ("/?q=x", "/run/x", "/run/x/rollouts", "/run/x/rollout/1", "/training/m", "/training/s"):
            assert client.get(address).status_code == 200
