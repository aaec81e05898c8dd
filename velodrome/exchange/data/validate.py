"""What a file of tasks holds: how many, how long, which fields, tools and agents, and every line that is not a task."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.problems import Problems
from velodrome.records.conversation import text_of
from velodrome.records.jsonl import read_lines
from velodrome.records.task import agent_of, parse_task, task_id
from velodrome.settings.files import file_problem

ANSWER = "expected_answer"
_MOST_NAMES = 200
_KINDS = {str: "text", bool: "true or false", int: "number", float: "number", list: "list", dict: "object"}


class NameTally(Counter[str]):
    """How often each name was seen; of endlessly many, the first ones."""

    def add(self, name: str) -> None:
        self[name if name in self or len(self) < _MOST_NAMES else "(others)"] += 1

    def table(self) -> dict[str, int]:
        return dict(self.most_common())


@dataclass
class Survey:
    """The statistics of a file. Memory grows by a few bytes per task: its length, and a hash of its name."""

    rows: int = 0
    duplicates: int = 0
    unanswered: int = 0
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    tools: NameTally = field(default_factory=NameTally)
    agents: NameTally = field(default_factory=NameTally)
    kinds: dict[str, NameTally] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    _seen: set[int] = field(default_factory=set)

    def add(self, task: Json) -> None:
        self.rows += 1
        name = hash(task_id(task))
        self.duplicates += name in self._seen
        self._seen.add(name)
        self.unanswered += task.get(ANSWER) in (None, "")
        params = task["responses_create_params"]
        self.lengths.append(prompt_length(params))
        tools = params.get("tools")
        for tool in tools or ():
            self.tools.add(_tool_name(tool))
        agent = agent_of(task)
        if agent is not None:
            self.agents.add(agent)
        for field_name, value in task.items():
            if field_name not in self.kinds and len(self.kinds) == _MOST_NAMES:
                continue
            self.kinds.setdefault(field_name, NameTally()).add(_KINDS.get(type(value), "null"))

    def summary(self) -> Json:
        lengths = sorted(self.lengths)
        return {
            "tasks": self.rows,
            "bad": self.problems.count,
            "duplicates": self.duplicates,
            "missing_answers": self.unanswered,
            "prompt_characters": {
                "p50": _at(lengths, 0.5),
                "p99": _at(lengths, 0.99),
                "max": lengths[-1] if lengths else None,
            },
            "tools": self.tools.table(),
            "agents": self.agents.table(),
            "fields": {name: kinds.table() for name, kinds in self.kinds.items()},
        }


def _at(lengths: list[int], share: float) -> int | None:
    return lengths[min(int(len(lengths) * share), len(lengths) - 1)] if lengths else None


def _tool_name(tool: Json) -> str:
    function = tool.get("function")
    name = tool.get("name", function.get("name") if isinstance(function, dict) else None)
    return name if isinstance(name, str) else str(tool.get("type", "(without a name)"))


def prompt_length(params: Json) -> int:
    """The number of characters in the prompt: instructions and messages."""
    prompt, instructions = params["input"], params.get("instructions")
    length = len(instructions) if isinstance(instructions, str) else 0
    if isinstance(prompt, str):
        return length + len(prompt)
    return length + sum(len(text_of(message.get("content"))) for message in prompt)


def survey(path: Path) -> Survey:
    """Read a file of tasks, line by line."""
    if (problem := file_problem(path)) is not None:
        raise InputError(problem)
    report = Survey()
    for number, line in read_lines(path):
        with report.problems.at(f"{path}:{number}"):
            report.add(parse_task(line))
    return report
