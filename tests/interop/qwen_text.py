"""The text that Qwen3's chat template makes, read back as the corpus's events.

Its marks are looked for and nothing else, so what the template left out is missing here, too. It has no call ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tests.interop.corpus import Case, Event, called, got, said, thought, told

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n?", re.DOTALL)
_THOUGHT = re.compile(r"\A<think>\n(.*?)\n</think>\n\n", re.DOTALL)
_CALL = re.compile(r"\n?<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
_TOOLS = re.compile(r"(?:\A|\n\n)# Tools\n.*?<tools>\n(.*?)\n</tools>.*", re.DOTALL)


def events(text: str) -> list[Event]:
    """The whole conversation."""
    result: list[Event] = []
    for role, content in _TURN.findall(text):
        if role == "assistant":
            result += turn(content)
        elif results := _RESULT.findall(content):
            result += [got("", each) for each in results]
        elif content := _TOOLS.sub("", content):
            result.append(told(role, content))
    return result


def turn(content: str) -> list[Event]:
    """One turn of the model."""
    match = _THOUGHT.match(content)
    thoughts = [thought(match[1])] if match and match[1] else []
    rest = content[match.end() :] if match else content
    calls = [json.loads(each) for each in _CALL.findall(rest)]
    words = _CALL.sub("", rest)
    spoken = [said(words)] if words or not calls else []
    return [*thoughts, *spoken, *(called("", call["name"], call["arguments"]) for call in calls)]


def own(events: Iterable[Event]) -> list[Event]:
    """What the model did."""
    return [event for event in without_ids(events) if event[0] in ("said", "thought", "called")]


def without_ids(events: Iterable[Event]) -> list[Event]:
    """As templates have them: no call ids, and what a developer says is the system's."""
    short = {"called": lambda event: ("called", "", *event[2:]), "got": lambda event: ("got", "", *event[2:])}
    known = [short.get(event[0], tuple)(event) for event in events]
    return [told("system", event[2]) if event[:2] == ("told", "developer") else event for event in known]


def held(case: Case) -> list[Event] | None:
    """What the text of Qwen3's template has of a case; None if it takes the text for its own marks."""
    if case.name == "marks":
        return None
    if case.name == "spaces":
        return [*case.prompt, said(case.made[0][1].lstrip("\n"))]
    return without_ids(case.happened)


def tools(text: str) -> list[dict[str, Any]]:
    """The functions on offer."""
    match = _TOOLS.search(next((content for role, content in _TURN.findall(text) if role == "system"), ""))
    return [json.loads(line) for line in match[1].splitlines()] if match else []
