"""The rule on tools: a tool answers any arguments with a text of limited length.

The arguments come from the tool's JSON schema and are then corrupted: other types, huge, nested, odd, missing, extra.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from velodrome.errors import RolloutError, describe
from velodrome.examiner.exam import Exam
from velodrome.examiner.rules import Rule, RuleFinding, RuleResult

Json = dict[str, Any]

CALLS = 48  # per tool
PER_SESSION = 12
_NOTICE = 200  # bytes of the note about the cut
_DEEP = 60

ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "\n\r\t\x1b[31m",
    "'; DROP TABLE x; --",
    "../../../../etc/passwd",
    "{} %s {0} $HOME `id`",
    "日本語 \u202eزبان 👩‍👩‍👧 \U0010ffff",
    "((((((((((",
    "NaN",
    "-1e999",
    "[" * 400,
    "9**9**9",
    "a" * 100_000,
)
ODD_NUMBERS = (0, -1, 1, 2**31, -(2**63), 10**18, 10**30, 0.1, -0.0, 1e308, 5e-324)
ODD_THINGS: tuple[Any, ...] = (None, True, False, [], {}, [None], {"": None}, [[[]]], ["a", 1, {}], {"a": {"b": ["c"]}})


class ToolsRule(Rule):
    """Calls every tool in sessions of the example tasks."""

    name = "tools"
    about = "tools answer any arguments with text, within limits, and never fail"

    async def examine(self, exam: Exam) -> RuleResult:
        tools = await exam.environment.tools()
        if not exam.tasks:
            return RuleResult(unchecked="there are no tasks")
        findings: list[RuleFinding] = []
        for tool in tools:
            findings += await self._fuzz(exam, tool)
        return RuleResult(findings, f"{CALLS} calls each of {len(tools)}" if tools else "it has none")

    async def _fuzz(self, exam: Exam, tool: Json) -> list[RuleFinding]:
        chance = random.Random(str(tool["name"]))
        findings: list[RuleFinding] = []
        for start in range(0, CALLS, PER_SESSION):
            row = exam.tasks[chance.randrange(len(exam.tasks))]
            try:
                session = await exam.environment.open(row.task)
            except RolloutError as error:
                return [*findings, RuleFinding(row.task_id, "", f"no session: {describe(error)[:300]}")]
            try:
                for number in range(start, start + PER_SESSION):
                    arguments = fuzz_arguments(tool.get("parameters") or {}, chance, number)
                    problem = await _call_problem(exam.environment, session, str(tool["name"]), arguments)
                    if problem:
                        findings.append(RuleFinding(row.task_id, f"{tool['name']}({arguments!r:.120})", problem))
            finally:
                with suppress(RolloutError):  # the rule on sessions reports it
                    await exam.environment.close(session)
        return findings


async def _call_problem(environment: Any, session: str, name: str, arguments: Any) -> str:
    """Call a tool; returns the problem with its answer, or an empty text."""
    try:
        text = await environment.call(session, name, arguments)
    except RolloutError as error:
        place = f" ({error.place})" if error.place else ""
        return f"{type(error).__name__}: {describe(error)[:300]}{place}"
    if not isinstance(text, str):
        return f"the result is {type(text).__name__}, not a text"
    limit = getattr(environment, "max_tool_output_bytes", None)
    size = len(text.encode("utf-8", "replace"))
    if limit is not None and size > limit + _NOTICE:
        return f"{size} bytes of text, more than max_tool_output_bytes={limit}"
    return ""


def fuzz_arguments(schema: Json, chance: random.Random, number: int) -> Any:
    """The arguments of call `number`: one in six is valid, the others are corrupted."""
    arguments = _valid(schema, schema, chance)
    names = sorted(arguments) or ["x"]
    match number % 6:
        case 0:
            return arguments
        case 1:
            return {name: chance.choice(ODD_TEXTS) for name in arguments}
        case 2:
            removed = chance.choice(names)
            return {name: value for name, value in arguments.items() if name != removed}
        case 3:
            return {**arguments, chance.choice(("session", "self", "x", "", "__class__")): chance.choice(ODD_THINGS)}
        case 4:
            return chance.choice((*ODD_THINGS, "text", 7, list(arguments.values())))
    return {**arguments, chance.choice(names): chance.choice((*ODD_TEXTS, *ODD_NUMBERS, *ODD_THINGS, _deep()))}


def _deep() -> Any:
    value: Any = "deep"
    for number in range(_DEEP):
        value = [value] if number % 2 else {"a": value}
    return value


def _valid(schema: Any, root: Json, chance: random.Random, depth: int = 0) -> Any:
    """A value that fits a JSON schema; only part of the schema language is supported."""
    if not isinstance(schema, dict) or depth > 8:
        return None
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target.get(part, {}) if isinstance(target, dict) else {}
        return _valid(target, root, chance, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return chance.choice(schema["enum"])
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return _valid(chance.choice(schema[name]), root, chance, depth + 1)
    kind = schema.get("type")
    kind = chance.choice(kind) if isinstance(kind, list) and kind else kind
    if kind == "object" or "properties" in schema:
        required = schema.get("required", ())
        return {
            name: _valid(each, root, chance, depth + 1)
            for name, each in schema.get("properties", {}).items()
            if name in required or chance.random() < 0.7
        }
    if kind == "array":
        return [_valid(schema.get("items"), root, chance, depth + 1) for _ in range(chance.randrange(4))]
    low, high = schema.get("minimum", -100), schema.get("maximum", 100)
    number = chance.uniform(float(low), float(high)) if kind in ("integer", "number") else 0.0
    plain = {"integer": round(number), "number": number, "boolean": chance.random() < 0.5, "null": None}
    return plain.get(str(kind), chance.choice(("a", "Oslo", "2 + 3", "name@example.com", "2026-01-31", *ODD_TEXTS[:8])))
