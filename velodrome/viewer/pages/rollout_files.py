"""One rollout to take along: as JSON, Markdown and a trace; as Python and curl that ask again; as a command.

No secret is in any of them: addresses and keys of a model come from environment variables.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.index import Entry
from velodrome.records.rollout import beside
from velodrome.timing import chrome
from velodrome.timing.invisible import escaped
from velodrome.viewer.pages.links import Links
from velodrome.viewer.parts import waterfall
from velodrome.viewer.parts.dialogue import ShownMessage, conversation
from velodrome.viewer.parts.safe_text import visible
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_MOST_COPIED = 20_000  # characters of a text in the page itself
_READ = """\
import asyncio
import os

import velodrome as velo

row = next(each for each in velo.read({path!r}) if each.key == {key!r})
print(row.reward, row.text)


async def ask(task):
    url, key = os.environ["OPENAI_BASE_URL"], os.environ.get("OPENAI_API_KEY")
    model = velo.OpenAI(base_url=url, model={model!r}, api_key=key)
    return {{"response": await model.respond(task["responses_create_params"])}}


if "OPENAI_BASE_URL" in os.environ:  # ask a model the same again, without tools or a score
    print(asyncio.run(velo.rollout(row.task, ask, verify=False)).text)
"""
_READ_FAILED = """\
import json

with open({path!r}, encoding="utf-8") as lines:
    row = [json.loads(line) for line in lines][{place}]
print(row["boundary"], row["error"])
"""
_CURL = """\
curl "$OPENAI_BASE_URL/responses" \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  --data-binary @- <<'JSON'
{body}
JSON
"""


def actions(source: ViewedFile, links: Links, entry: Entry, row: Json) -> Json:
    """What can be done with a rollout: texts to copy and files to keep, each with its address if there is one."""
    copies = [
        ("rerun", "Run this one again", rerun(source, entry)),
        ("py", "Copy as Python", python(source, entry, row)),
    ]
    if isinstance(row.get("responses_create_params"), dict):
        copies.append(("sh", "Copy as curl", curl(row)))
    stem = re.sub(r"[^\w.-]+", "-", entry.key, flags=re.ASCII).strip("-.")[:80] or "rollout"
    forms = [("json", "JSON", ".json"), ("md", "Markdown", ".md")]
    if waterfall.has_spans(_timing(row).get("tree")):
        forms.append(("trace", "Trace for Perfetto", ".trace.json"))
    files = [(label, links.rollout_file(entry.number, form), stem + suffix) for form, label, suffix in forms]
    return {
        "copies": [
            {
                "form": form,
                "label": label,
                "text": visible(text) if len(text) <= _MOST_COPIED else None,
                "href": links.rollout_file(entry.number, form) if len(text) > _MOST_COPIED else None,
            }
            for form, label, text in copies
        ],
        "files": [each for each in files if each[1]],
    }


def rerun(source: ViewedFile, entry: Entry) -> str:
    """The command that makes this rollout again."""
    return shlex.join(["velo", "rerun", str(source.path), entry.key])


def python(source: ViewedFile, entry: Entry, row: Json) -> str:
    """A program that reads this rollout, and asks a model again if it is told which."""
    path = source.path.resolve()
    if entry.state == "failed":
        return _READ_FAILED.format(path=str(beside(path, "failures.jsonl")), place=entry.line - 1)
    return _READ.format(path=str(path), key=entry.key, model=_model(row))


def curl(row: Json) -> str:
    """The first request to the model, as a command."""
    params = row.get("responses_create_params")
    if not isinstance(params, dict):
        raise InputError("This rollout does not have what its model was asked.")
    return _CURL.format(body=json.dumps({"model": _model(row), **params}))  # ASCII: nothing in it can be hidden


def markdown(row: Json) -> str:
    """The conversation as Markdown."""
    failed = "boundary" in row
    parts = [f"# {_line(_key(row))}", "Failed:" if failed else f"Reward: {_line(str(row.get('reward')))}"]
    if failed:
        parts.append(_fenced(str(row.get("error") or "no message")))
    for number, message in enumerate(conversation(row), 1):
        parts += _said(number, message)
    return "\n\n".join(parts) + "\n"


def trace(row: Json) -> str:
    """The spans in Chrome's Trace Event format, which ui.perfetto.dev and chrome://tracing open."""
    spans = waterfall.read_spans(_timing(row).get("tree"))
    if not spans:
        raise InputError("This rollout has no spans: its times were not recorded.")
    events = chrome.process(1, _line(_key(row)), 0)
    for track, (kind, row_, places) in enumerate(waterfall.tracks(spans), 1):
        events += chrome.thread(1, track, f"{kind} {row_ + 1}" if row_ else kind, track)
        for each in (spans[place] for place in places):
            start, end = round(each.start_ms * 1000), round(each.end_ms * 1000)
            events.append(chrome.complete(1, track, each.name, kind, start, end, {"counts": each.note}))
    return orjson.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).decode()


def _key(row: Json) -> str:
    meta = row.get("meta")
    return str((meta if isinstance(meta, dict) else row).get("key") or "a rollout")


def _timing(row: Json) -> Json:
    meta = row.get("meta")
    timing = (meta if isinstance(meta, dict) else row).get("timing")
    return timing if isinstance(timing, dict) else {}


def _model(row: Json) -> str:
    params, response = row.get("responses_create_params"), row.get("response")
    named = [each.get("model") for each in (params, response) if isinstance(each, dict)]
    return next((name for name in named if isinstance(name, str) and name), "MODEL")


def _said(number: int, message: ShownMessage) -> list[str]:
    title = f"## {number} · {message.role}"
    parts = [f"{title} · {_line(message.name)}" if message.name else title]
    if message.aloud:
        plain = message.role in ("tool", "other")
        parts.append(_fenced(message.aloud) if plain else escaped(message.aloud))
    for call in message.calls:
        parts += [f"Call of `{_line(call.name).replace('`', '')}`:", _fenced(call.raw)]
        parts += ["No result."] if call.aloud is None else ["Result:", _fenced(call.aloud)]
    return parts


def _line(text: str) -> str:
    return escaped(" ".join(text.split()))


def _fenced(text: str) -> str:
    """A text between fences that are longer than any in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}\n{escaped(text)}\n{fence}"
