"""Downloads and commands of one rollout: JSON, text and a trace; its first request as curl; a command to run it again.

None of them has a secret: addresses and keys of a model come from environment variables.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.index import Entry
from velodrome.profiling.chrome_trace import Drawing
from velodrome.records.facts import RowFacts
from velodrome.records.mending import HOSTILE
from velodrome.viewer.pages.links import Links
from velodrome.viewer.parts.safe_text import visible
from velodrome.viewer.runs.run_summary import read_runs
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
    """The texts to copy and the files to download, each with its address."""
    copies = []
    if (command := rerun(source, entry)) is not None:
        copies.append(("rerun", "Run this one again", command))
    if isinstance(row.get("responses_create_params"), dict):
        copies.append(("sh", "Copy as curl", curl(row)))
    stem = re.sub(r"[^\w.-]+", "-", entry.key, flags=re.ASCII).strip("-.")[:80] or "rollout"
    forms = [("json", "JSON", ".json"), ("txt", "Text", ".txt")]
    if _trace(row) is not None:
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
    command = ({}, *read_runs(source.path))[-1].get("command")
    return f"{command} --only {shlex.quote(entry.key)} --no-save" if isinstance(command, str) else None


def curl(row: Json) -> str:
    """The first request to the model, as a command."""
    params = row.get("responses_create_params")
    if not isinstance(params, dict):
        raise InputError("This rollout does not hold the request to its model.")
    return _CURL.format(body=json.dumps({"model": _model(row), **params}))  # ASCII, so that no character is invisible


def trace(row: Json) -> bytes:
    """The spans in Chrome's Trace Event format, which ui.perfetto.dev and chrome://tracing open."""
    events = _trace(row)
    if events is None:
        raise InputError("This rollout has no spans: its times were not recorded.")
    return events


def _trace(row: Json) -> bytes | None:
    try:
        events = Drawing().rollout(RowFacts(row, failed="boundary" in row))
        return orjson.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) if events else None
    except HOSTILE:
        return None


def _model(row: Json) -> str:
    params, response = row.get("responses_create_params"), row.get("response")
    names = [each.get("model") for each in (params, response) if isinstance(each, dict)]
    return next((name for name in names if isinstance(name, str) and name), "MODEL")
