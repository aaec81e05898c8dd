"""One environment, described for its users: tools, fields of a task, settings, answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from velodrome.contracts import prompt_text
from velodrome.examiner.exam import Exam
from velodrome.examiner.subject import Subject
from velodrome.resources_servers.environment import Environment
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.settings.component import Component, settings_of
from velodrome.settings.model import setting_rows
from velodrome.timing.figures import counted

Json = dict[str, Any]

_LONGEST = 160
_ALL = 10_000
_KINDS = {str: "text", bool: "true or false", int: "number", float: "number", list: "list", dict: "object"}


async def describe_subject(subject: Subject) -> Json:
    """The description as JSON."""
    environment = subject.make()
    try:
        exam = Exam(subject, environment, _ALL)
        description = {
            "name": subject.name,
            "tools": [_tool(each) for each in await environment.tools()],
            "task_fields": _fields([row.task or {} for row in exam.tasks]),
            "settings": list(_settings(type(environment))),
            "answers": dict(Counter(case.kind for case in exam.cases if case.kind != "garbage")),
            "tasks": len(exam.tasks),
            "example": exam.tasks[0].task if exam.tasks else None,
        }
    finally:
        if subject.owned and hasattr(environment, "aclose"):
            await environment.aclose()
    return description


def description_lines(description: Json) -> Iterator[str]:
    """The description as lines of text."""
    yield "tools:" if description["tools"] else "tools: none"
    for tool in description["tools"]:
        yield f"  {tool['name']}({', '.join(tool['parameters'])}): {tool['about']}"
    yield "fields of a task:" if description["task_fields"] else "fields of a task: no examples to see them in"
    for name, kinds in description["task_fields"].items():
        yield f"  {name}: {kinds}"
    yield "settings:" if description["settings"] else "settings: those of every environment"
    for name, text in description["settings"]:
        yield f"  {name}: {text}"
    kinds = {"reference": "reference answer", "wrong": "wrong answer", "cheat": "cheat"}
    counts = [counted(description["answers"].get(kind, 0), noun) for kind, noun in kinds.items()]
    yield f"{counted(description['tasks'], 'example task')} with {', '.join(counts)}"
    if description["example"] is not None:
        yield "example:"
        yield from (f"  {line}" for line in _example(description["example"]))


def _tool(tool: Json) -> Json:
    schema = tool.get("parameters") or {}
    required = schema.get("required", ())
    parameters = [
        f"{name}{'' if name in required else '?'}: {_kind(each)}" for name, each in schema.get("properties", {}).items()
    ]
    return {"name": tool["name"], "parameters": parameters, "about": str(tool.get("description", "")).split("\n")[0]}


def _kind(schema: Any) -> str:
    """A schema in a word or two."""
    if not isinstance(schema, dict):
        return "anything"
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))[:_LONGEST]
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return " | ".join(map(_kind, several))
    if schema.get("type") == "array":
        return f"array of {_kind(schema.get('items'))}"
    return str(schema.get("type") or str(schema.get("$ref", "anything")).rpartition("/")[2])


def _fields(tasks: Sequence[Json]) -> dict[str, str]:
    """The kinds of each field except the prompt, with the number of tasks that have it if not all do."""
    kinds: dict[str, Counter[str]] = {}
    for task in tasks:
        for name, value in task.items():
            if name != "responses_create_params":
                kinds.setdefault(name, Counter())[_KINDS.get(type(value), "null")] += 1
    description = {}
    for name, counts in kinds.items():
        some = "" if counts.total() == len(tasks) else f" (in {counts.total()} of {len(tasks)} tasks)"
        description[name] = " or ".join(counts) + some
    return description


def _settings(owner: type) -> Iterator[tuple[str, str]]:
    """The settings of the class that other environments do not have."""
    if not issubclass(owner, Component):
        return
    base = TurnEnvironment if issubclass(owner, TurnEnvironment) else Environment
    shared_names = {name for name, _, _ in setting_rows(settings_of(base))}
    for name, text, _ in setting_rows(settings_of(owner)):
        if name not in shared_names:
            yield name, text


def _example(task: Json) -> Iterator[str]:
    prompt = prompt_text(task["responses_create_params"])
    yield f"prompt: {_short(prompt) if prompt else '(the environment speaks first)'}"
    yield from (f"{name}: {_short(value)}" for name, value in task.items() if name != "responses_create_params")


def _short(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else orjson.dumps(value).decode()).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
