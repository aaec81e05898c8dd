"""Rows nobody vouches for: attacks, wrong shapes, a megabyte of text."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import orjson
from made_runs import HOSTILE, hostile_row, rollout, write
from parsed_page import Page
from viewing import ODD, TAGS, page_at, viewing, wait_for

Json = dict[str, Any]


def test_what_a_model_says_is_text_wherever_it_stands(tmp_path: Path):
    rows = [hostile_row(f"{HOSTILE}/{repeat}") for repeat in range(2)]
    path = write(tmp_path / "h.jsonl", [*rows, b"{garbage " + HOSTILE.encode()])
    failed = {
        "key": f"{HOSTILE}/3",
        "boundary": HOSTILE,
        "error": HOSTILE,
        "partial": rows[0]["output"],
        "attempt": HOSTILE,
    }
    write(tmp_path / "h.failures.jsonl", [failed])
    run = {"runs": [{"finished_at": 1, "stopped": HOSTILE, "requested": 3}]}
    (tmp_path / "h.run.json").write_bytes(orjson.dumps(run))
    with viewing(path, write(tmp_path / "i.jsonl", rows)) as client:
        wait_for(client, "/run/h", "pass@")
        for address in (
            "/run/h",
            "/run/h/rollouts",
            f"/run/h/rollouts?q={quote(HOSTILE)}&sort={quote(HOSTILE)}&after={quote(HOSTILE)}",
            "/run/h/rollout/1",
            "/run/h/rollout/1?show=m1",
            f"/run/h/rollout/1?q={quote(HOSTILE)}&sort={quote(HOSTILE)}&show={quote(HOSTILE)}",
            "/run/h/rollout/f1",
            "/run/h/tasks",
            f"/run/h/task?id={quote(HOSTILE)}",
            "/run/h/failures",
            "/compare?a=h&b=i",
            f"/{quote(HOSTILE, safe='')}",
            f"/run/{quote(HOSTILE, safe='')}",
            f"/run/h/key/{quote(HOSTILE)}",
        ):
            answer = client.get(address)
            page = Page(answer.text)
            assert answer.status_code in (200, 404), (address, page.words)
            assert (page.crossed, page.unclosed) == ([], []), address
            assert {tag for tag, _ in page.tags} <= TAGS, address
            names = {name for _, attrs in page.tags for name in attrs}
            assert [name for name in names if name.startswith("on") or name == "style"] == [], address
            assert ODD.findall(answer.text) == [], address
            hrefs = [
                value for _, attrs in page.tags for name, value in attrs.items() if name in ("href", "src", "action")
            ]
            ours = [value for value in hrefs if value and not value.startswith(("https://", "data:image/png;"))]
            assert [value for value in ours if not value.startswith(("/", "#"))] == [], address
            away = [attrs for tag, attrs in page.tags if (attrs.get("href") or "").startswith("https://")]
            assert [attrs for attrs in away if attrs.get("rel") != "noreferrer noopener"] == [], address


def test_the_way_from_failures_alike_to_their_list_survives_what_cannot_be_seen(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [rollout(1, 0, Random(1))])
    messages = ["\u202e\x00\u200b\x1b\ufeff\U000e0041", "\\u{41} is \u202ehere", "\u200bplain"]
    failed = [{"key": f"t/{at}", "boundary": "tool", "error": text, "attempt": 1} for at, text in enumerate(messages)]
    write(tmp_path / "r.failures.jsonl", failed)
    with viewing(path) as client:
        ways = [
            link for link in page_at(client, "/run/r/failures").links() if "error%3A" in link and "/rollouts?" in link
        ]
        assert len(ways) == 3
        for way in ways:
            answer = client.get(way)
            page = Page(answer.text)
            assert "1 rollout matches" in page.words
            assert ODD.findall(answer.text) == []
            shown = next(attrs["value"] for tag, attrs in page.tags if tag == "input" and attrs.get("name") == "q")
            again = page_at(client, f"/run/r/rollouts?q={quote(shown or '')}")
            assert "1 rollout matches" in again.words


def test_a_field_whose_name_cannot_be_seen_is_shown_by_its_code_and_can_be_used(tmp_path: Path):
    name = "pass@\u202e\u200b/x"
    rows = [rollout(1, at, Random(at)) | {name: at * 1e99} for at in range(2)]
    path = write(tmp_path / "r.jsonl", rows)
    (tmp_path / "r.run.json").write_bytes(orjson.dumps({"runs": [{"finished_at": 1e12, "stopped": "\u202e"}]}))
    with viewing(path) as client:
        wait_for(client, "/run/r", "tokens_per_s")
        for address in ("/run/r", f"/run/r/rollouts?sort={quote(name)}&q={quote(name)}>0"):
            answer = client.get(address)
            assert ODD.findall(answer.text) == [], address
            assert "inf%" not in answer.text
        assert "1 rollout matches" in page_at(client, "/run/r/rollouts?q=pass@\\u{202e}\\u{200b}/x>0").words


def test_a_text_of_a_megabyte_is_folded_and_sent_whole_when_asked_for(tmp_path: Path):
    text = "".join(f"word{place} " for place in range(120_000))
    row = {"output": [{"role": "assistant", "content": text}], "reward": 1, "meta": {"key": "big/0"}}
    path = write(tmp_path / "r.jsonl", [row])
    with viewing(path) as client:
        folded = client.get("/run/r/rollout/1")
        page = Page(folded.text)
        more = next(link for link in page.links() if "show=m1" in link)
        whole = client.get(more)
    assert len(folded.content) < 120_000
    assert f"{len(text) - 5000:,} characters are left out here · show all {len(text):,}" in page.words
    assert "word60000" not in folded.text
    assert text.strip() in Page(whole.text).text[-1] + "".join(Page(whole.text).text)
    assert more.endswith("#m1")


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
    assert "Something else web_search_call" in page.words
    assert re.search(r'<summary><span class="preview"[^>]*>{\n  &quot;type&quot;: &quot;web_search_call&quot;', text)
    assert "+ 44 lines, 815 bytes" in page.words
    assert '"query": "stamps"' in page.words
    assert '"type": "odd"' in page.words
    for words in ("only white space", "Result an empty text", "User an empty text"):
        assert words in page.words, words
    assert "an empty text" in repeats.words


def test_rows_of_every_wrong_shape_have_pages(tmp_path: Path):
    whole = rollout(1, 0, Random(1))
    rows: list[Any] = [
        {**whole, name: wrong} for name in whole for wrong in (None, 7, "text", [], [1], {}, {"a": 1}, True)
    ]
    rows += [
        {**whole, "meta": {**whole["meta"], name: wrong}} for name in whole["meta"] for wrong in (None, 7, "t", [], {})
    ]
    rows += [
        b'{"deep": ' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"reward": NaN, "response": {"content": "\\ud800"}}',
        {},
        b"7",
        b"[]",
    ]
    path = write(tmp_path / "r.jsonl", rows)
    write(
        tmp_path / "r.failures.jsonl",
        [
            *(
                {"key": f"f/{number}", "error": wrong, "timing": wrong}
                for number, wrong in enumerate((None, 7, [], {}))
            ),
            *({"key": wrong, "error": "lost"} for wrong in (None, 7, [], {})),  # nobody's: no failure of a rollout
        ],
    )
    with viewing(path) as client:
        names = [str(number) for number in range(1, len(rows) - 1)] + ["f1", "f2", "f3", "f4"]
        page_at(client, "/run/r")
        for name in names:
            assert (name, client.get(f"/run/r/rollout/{name}").status_code) == (name, 200)
            assert client.get(f"/run/r/rollout/{name}.json").status_code == 200
        page_at(client, "/run/r/task?id=task-001")
        for way in (
            "/run/r/tasks",
            "/run/r/failures",
            "/run/r/rollouts?sort=-reward",
            "/run/r/rollouts?q=state:failed",
        ):
            page_at(client, way)
