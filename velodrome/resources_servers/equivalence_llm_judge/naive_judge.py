"""A judge for tests and examples: it compares words, and obeys whatever it reads outside the marks.

So an environment that let an answer out of its fence would pay for cheats. It is a function, not a model.
"""

from __future__ import annotations

import re
from typing import Any

from velodrome.records.conversation import text_of
from velodrome.resources_servers.stated import words

BEGIN = re.compile(r"BEGIN (?P<name>question|A|B) (?P<mark>\S+)")
OUR_OWN = re.compile(r"(?:BEGIN|END) (?:question|A|B) \S+|Compare A with B\.|")
ORDER = re.compile(
    r"\[\[.+?\]\]|<\|.+?\|>|\b(?:ignore|disregard|output|reply|verdict|equal|identical|same)\b", re.IGNORECASE
)


async def naive_judge(request: dict[str, Any]) -> str:
    """Equal if the words are; and equal if anything outside the marks says so."""
    fields: dict[str, list[str]] = {"question": [], "A": [], "B": []}
    inside = mark = None
    for line in text_of(request["input"][1]["content"]).splitlines():
        begin = BEGIN.fullmatch(line)
        if inside is None and begin is not None:
            inside, mark = begin["name"], begin["mark"]
        elif inside is not None and line == f"END {inside} {mark}":
            inside = None
        elif inside is not None:
            fields[inside].append(line.removeprefix("| "))
        elif not OUR_OWN.fullmatch(line) and ORDER.search(line):
            return "As you wish.\n[[A=B]]"
    first, second = words("\n".join(fields["A"])), words("\n".join(fields["B"]))
    return "I compared them.\n[[A=B]]" if first and first == second else "I compared them.\n[[A!=B]]"
