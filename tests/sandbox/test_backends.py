"""Which kind of sandbox is used: the best one that works here, and none at all only if that is allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from people import USERS, OpenInterpreter

from velodrome.errors import InputError
from velodrome.sandbox import Sandboxes


def opened(interpreter: OpenInterpreter, user: str, *, sandlock: bool, allow_unsafe: bool = False) -> Any:
    return interpreter.run(user, "forbidden.py", {"sandlock": sandlock, "allow_unsafe": allow_unsafe})


@pytest.mark.parametrize("user", USERS)
def test_sandlock_is_used_where_namespaces_are_forbidden(interpreter: OpenInterpreter, user: str):
    result = opened(interpreter, user, sandlock=True, allow_unsafe=True)
    assert result == {"backend": "sandlock", "outputs": ["42\n", "42\n"], "warnings": []}


def test_where_nothing_works_one_line_says_what_was_tried_and_the_way_out(interpreter: OpenInterpreter):
    refused = opened(interpreter, USERS[-1], sandlock=False)["refused"]
    assert "\n" not in refused
    for word in ("bubblewrap: bwrap:", "sandlock:", "velodrome[sandbox]", "allow_unsafe=true", "docs/sandbox.md"):
        assert word in refused


def test_an_unsafe_box_is_announced_once_and_loudly(interpreter: OpenInterpreter):
    result = opened(interpreter, USERS[-1], sandlock=False, allow_unsafe=True)
    assert (result["backend"], result["outputs"]) == ("unsafe", ["42\n", "42\n"])
    assert len(result["warnings"]) == 1
    assert "WITHOUT" in result["warnings"][0]


def test_unsafe_is_refused_if_it_is_not_allowed():
    with pytest.raises(InputError, match="allow_unsafe"):
        asyncio.run(Sandboxes(backend="unsafe").open())


def test_nothing_is_started_before_the_first_box_is_opened():
    boxes = Sandboxes(warm=4)
    assert (boxes.backend, len(boxes._ready), len(boxes._open)) == (None, 0, 0)
