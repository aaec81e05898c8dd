"""Hostile programs in real sandboxes, as root and as an ordinary user; where there is none; and what they leave."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.environments.sandbox.hostile import ATTEMPTS, EXCESSES
from tests.support.people import USERS, OpenInterpreter, number

pytestmark = pytest.mark.slow
EVERY_USER = ["ordinary", *(pytest.param(user, marks=pytest.mark.chaos) for user in USERS if user != "ordinary")]
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


@pytest.mark.parametrize("user", EVERY_USER)
def test_attempts_to_escape_fail_and_the_box_can_still_be_used(
    interpreter: OpenInterpreter, host: dict[str, Any], user: str
):
    results = outcomes(interpreter, host, user, "bubblewrap", [*ATTEMPTS])
    expected = {"stdout": "tried\n", "stopped": "", "exit_code": 0, "after": 0}
    seen = {name: {key: ran[key] for key in expected} for name, ran in results.items()}
    assert seen == dict.fromkeys(ATTEMPTS, expected)
    assert [name for name in os.listdir(host["open_folder"]) if "bubblewrap" in name] == []


@pytest.mark.parametrize("user", EVERY_USER)
def test_the_same_attempts_succeed_without_a_sandbox(interpreter: OpenInterpreter, host: dict[str, Any], user: str):
    names = [name for name in ATTEMPTS if name not in NOT_OUTSIDE]
    if Path("/proc/sys/kernel/io_uring_disabled").read_text().strip() != "0":
        names.remove("io_uring")  # this machine refuses it to everybody
    results = outcomes(interpreter, host, user, "unsafe", names)
    assert {name: ran for name, ran in results.items() if "ESCAPED" not in ran["stdout"]} == {}


@pytest.mark.parametrize("user", EVERY_USER)
def test_programs_that_use_too_much_are_stopped_by_that_limit(
    interpreter: OpenInterpreter, host: dict[str, Any], user: str
):
    results = outcomes(interpreter, host, user, "bubblewrap", [*EXCESSES])
    assert {name: ran for name, ran in results.items() if ran["stopped"] != EXCESSES[name][2]} == {}
    after = {name: (0, -9) if ran["stopped"] == "disk" else (0,) for name, ran in results.items()}  # it is still full
    assert {name: ran["after"] for name, ran in results.items() if ran["after"] not in after[name]} == {}


@pytest.mark.parametrize("user", EVERY_USER)
def test_what_boxes_share_with_the_host_is_what_the_docs_list(interpreter: OpenInterpreter, user: str):
    seen = interpreter.run(user, "shared.py", {"backend": "bubblewrap"})
    assert seen == {
        "the inode of a library": True,
        "a lock of another box": True,
        "on the host, a lock of a box": True,
        "that the host reads a library": True,
        "the size of the host's disk": True,
        "on the host, when a box touched /dev/null": True,
        "paths of the host": True,
        "the load": True,
        "statistics of disks": True,
        "the boot id": True,
        "users": False,
    }


@pytest.mark.parametrize(
    ("user", "count"), [("ordinary", 26), *(pytest.param(user, 500, marks=pytest.mark.chaos) for user in USERS)]
)
def test_hostile_programs_leave_nothing(interpreter: OpenInterpreter, user: str, count: int):
    result = interpreter.run(user, "remains.py", {"backend": "bubblewrap", "count": count})
    assert result["after"] == result["before"]
    assert result["after"]["processes"] == 0
    assert sum(result["ends"].values()) == count
