"""Which kind of sandbox is used: the best one that works here, and none at all only if that is allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.people import USERS, OpenInterpreter
from velodrome.environments.sandbox import Sandboxes
from velodrome.errors import InputError

pytestmark = pytest.mark.slow


def opened(interpreter: OpenInterpreter, user: str, *, allow_unsafe: bool = False) -> Any:
    return interpreter.run(user, "forbidden.py", {"allow_unsafe": allow_unsafe})


@pytest.mark.parametrize("user", ["ordinary", *(pytest.param(user, marks=pytest.mark.chaos) for user in USERS[:-1])])
def test_where_nothing_works_one_line_says_what_was_tried_and_the_way_out(interpreter: OpenInterpreter, user: str):
    refused = opened(interpreter, user)["refused"]
    assert "\n" not in refused
    for word in ("bubblewrap: bwrap:", "allow_unsafe=true", "docs/sandbox.md"):
        assert word in refused


def test_an_unsafe_box_is_announced_once_and_loudly(interpreter: OpenInterpreter):
    result = opened(interpreter, USERS[-1], allow_unsafe=True)
    assert (result["backend"], result["outputs"]) == ("unsafe", ["42\n", "42\n"])
    assert len(result["warnings"]) == 1
    assert "WITHOUT" in result["warnings"][0]


def test_unsafe_is_refused_if_it_is_not_allowed():
    with pytest.raises(InputError, match="allow_unsafe"):
        asyncio.run(Sandboxes(backend="unsafe").open())
