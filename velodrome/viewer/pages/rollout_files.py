"""One rollout to take along: as JSON, Markdown and a trace; as curl that asks again; as a command that runs it again.

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
from velodrome.profiling import chrome_trace as chrome
from velodrome.records.jsonl import open_regular
from velodrome.records.mending import HOSTILE
from velodrome.records.rollout import beside
from velodrome.timing.invisible import escaped
from velodrome.viewer.pages.links import Links
from velodrome.viewer.parts import waterfall
from velodrome.viewer.parts.dialogue import ShownMessage, conversation
from velodrome.viewer.parts.safe_text import visible
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_MOST_COPIED = 20_000  # characters of a text in the page itself
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
    copies = []
    if (command := rerun(source, entry)) is not None:
        copies.append(("rerun", "Run this one again", command))
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


def rerun(source: ViewedFile, entry: Entry) -> str | None:
    """The command of the last run of this file, for this rollout alone; None if the run file has none."""
    try:
        with open_regular(beside(source.path, "run.json")) as file:
            command = orjson.loads(file.read())["runs"][-1]["command"]
    except (*HOSTILE, OSError):
        return None
    return f"{command} --only {shlex.quote(entry.key)} --no-save" if isinstance(command, str) else None


def curl(row: Json) -> str:
    """The first request to the model, as a command."""
    params = row.get("responses_create_params")
    if not isinstance(params, dict):
        raise InputError("This rollout does not hold the request to its model.")
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
