"""Hostile programs in real sandboxes, as root and as an ordinary user; and the same ones where there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hostile import ATTEMPTS, EXCESSES
from people import USERS, OpenInterpreter, number

pytestmark = pytest.mark.slow
BACKENDS = ["bubblewrap", "sandlock"]
NOT_OUTSIDE = {"supervisor", "descriptors", "rights"}  # the first ends an unsafe box; ordinary users have no rights


def outcomes(interpreter: OpenInterpreter, host: dict[str, Any], user: str, backend: str, names: list[str]) -> Any:
    """What became of the programs, each in a box of its own, run by this user."""
    secret = Path(host["open_folder"]).parent / f"{user}-{backend}-{len(names)}"
    secret.write_text("secret")
    os.chown(secret, number(user), -1)
    with subprocess.Popen(["sleep", "1000"], user=number(user)) as sleeper:
        facts = host | {"secret": str(secret), "sleeper": sleeper.pid}
        request = {"backend": backend, "facts": facts, "programs": names}
        try:
            return interpreter.run(user, "hostile.py", request, SANDBOX_TEST_SECRET="secret")
        finally:
            sleeper.kill()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("user", USERS)
def test_attempts_to_escape_fail_and_the_box_can_still_be_used(
    interpreter: OpenInterpreter, host: dict[str, Any], user: str, backend: str
):
    results = outcomes(interpreter, host, user, backend, [*ATTEMPTS])
    expected = {"stdout": "tried\n", "stopped": "", "exit_code": 0, "after": 0}
    assert {name: {key: ran[key] for key in expected} for name, ran in results.items()} == dict.fromkeys(
        ATTEMPTS, expected
    )
    assert [name for name in os.listdir(host["open_folder"]) if backend in name] == []


@pytest.mark.parametrize("user", USERS)
def test_the_same_attempts_succeed_without_a_sandbox(interpreter: OpenInterpreter, host: dict[str, Any], user: str):
    names = [name for name in ATTEMPTS if name not in NOT_OUTSIDE]
    if Path("/proc/sys/kernel/io_uring_disabled").read_text().strip() != "0":
        names.remove("io_uring")  # this machine refuses it to everybody
    results = outcomes(interpreter, host, user, "unsafe", names)
    assert {name: ran for name, ran in results.items() if "ESCAPED" not in ran["stdout"]} == {}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("user", USERS)
def test_programs_that_use_too_much_are_stopped_by_that_limit(
    interpreter: OpenInterpreter, host: dict[str, Any], user: str, backend: str
):
    results = outcomes(interpreter, host, user, backend, [*EXCESSES])
    assert {name: ran for name, ran in results.items() if ran["stopped"] not in EXCESSES[name][2].split()} == {}
    assert {name: ran["after"] for name, ran in results.items()} == dict.fromkeys(EXCESSES, 0)
