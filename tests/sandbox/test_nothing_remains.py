"""After 500 hostile programs there is nothing left of them on the host."""

from __future__ import annotations

import pytest
from people import USERS, OpenInterpreter

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(("backend", "count"), [("bubblewrap", 500), ("sandlock", 60)])
def test_hostile_programs_leave_nothing(interpreter: OpenInterpreter, user: str, backend: str, count: int):
    result = interpreter.run(user, "remains.py", {"backend": backend, "count": count})
    assert result["after"] == result["before"]
    assert result["after"]["processes"] == 0
    assert sum(result["ends"].values()) == count
