"""terminal: a shell per rollout, and checks of what it leaves, from outside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.resources_servers.playing import Json, closing, opened, results, rewards, says
from velodrome.environments.terminal.app import Terminal
from velodrome.environments.terminal.checks import CHECKS
from velodrome.records.conversation import Response

pytestmark = pytest.mark.slow
NOTHING = [{"type": "file_exists", "path": "never"}]


def outputs(*commands: str, **settings: Any) -> list[str]:
    """What the shell shows of each command in one session."""
    return opened(Terminal(**settings), {"checks": NOTHING}, *(("shell", {"command": each}) for each in commands))


def does(*commands: str) -> list[Any]:
    return [*({"tool_calls": [{"name": "shell", "arguments": {"command": each}}]} for each in commands), "Done."]


def test_the_folder_variables_and_files_stay_from_command_to_command():
    assert outputs(
        "mkdir -p 'a b' && cd 'a b' && export NAME='it is \"me\"' && other=lost",
        'basename "$PWD"; echo "$NAME$other"; echo text > file',
        "cd ..; cat 'a b/file'",
        "exit 3",
        "ls; unset NAME",
        'echo "[$NAME]"; ls nowhere 2>&1 | head -c 3; echo; echo two >&2',
    ) == ["(no output)", 'a b\nit is "me"\n', "text\n", "\n(exit code 3)", "a b\n", "[]\nls:\ntwo\n"]
    missing, syntax = outputs("no-such-command", "if")
    assert "no-such-command" in missing
    assert missing.endswith("(exit code 127)")
    assert "syntax error" in syntax


def test_a_command_that_takes_too_long_or_writes_too_much_is_stopped_and_the_next_one_runs():
    spinning, waiting, endless, after = outputs(
        "while :; do :; done", "sleep 600", "tr x y < /dev/zero", "echo fine", command_timeout_s=1
    )
    assert spinning.endswith("(stopped: it took too long)")
    assert waiting.endswith("(stopped: it took too long)")
    assert endless.endswith("(stopped: beyond its limit of output)")
    assert len(endless) < 11_000
    assert after == "fine\n"


def test_nothing_keeps_running_after_a_command():
    text = outputs(
        "(bash -c 'trap \"\" TERM HUP; while :; do date >> beat; done' >/dev/null 2>&1 &)\n"
        "while [ ! -s beat ]; do :; done; echo started",
        "wc -c < beat; for i in $(seq 500); do :; done; wc -c < beat",
    )
    assert text[0] == "started\n"
    first, second = text[1].splitlines()
    assert first == second


@pytest.mark.parametrize("command", ["kill -9 -1", "trap - EXIT; cd /", "exec >&-", "\x00", "ulimit -t 0"])
def test_what_a_command_does_to_its_shell_is_gone_with_it(command: str):
    assert outputs(command, "echo fine")[1] == "fine\n"


CHECKED = {  # parameters of a check, a command that fulfils it, one that does not
    "file_equals": ({"path": "out", "text": "a\nb\n"}, "printf 'a  \\nb\\n\\n' > out", "printf 'a\\n b' > out"),
    "file_contains": ({"path": "d/out", "text": "a"}, "mkdir d; echo bab > d/out", "mkdir d; echo b > d/out"),
    "file_lacks": ({"path": "out", "text": "a"}, "echo b > out", ":"),
    "file_exists": ({"path": "out"}, "touch out", "mkdir out"),
    "file_absent": ({"path": "in"}, "rm in", ":"),
    "json_equals": (
        {"path": "out", "value": {"n": 1, "is": True}},
        """echo '{ "n": 1.0, "is": true}' > out""",
        """echo '{"n": true, "is": 1}' > out""",
    ),
    "sorted_lines": (
        {"path": "out", "lines": ["a", "b"]},
        "printf 'b\\n\\na' > out",
        "printf 'a\\nb\\nb' > out",
    ),
    "command_output": (
        {"command": "bash s 2; cat; cat new", "stdin": "x\n", "files": {"new": "new"}, "text": "4\nx\nnew"},
        "echo 'echo $(($1 * 2))' > s; echo old > new",
        "echo 'echo 5' > s",
    ),
}


@pytest.mark.parametrize("kind", CHECKED)
def test_each_check_holds_where_it_should(kind: str):
    check, right, wrong = CHECKED[kind]
    task = {"files": {"in": "given\n"}, "checks": [{"type": kind, **check}]}
    assert rewards(Terminal(), task, {"right": does(right), "wrong": does(wrong)}) == {"right": 1.0, "wrong": 0.0}
    assert {*CHECKED, "file_unchanged"} == {*CHECKS}


def test_a_command_that_is_a_check_must_end_well_and_json_must_be_whole():
    fails = {"type": "command_output", "command": "cat in; exit 1", "text": "given"}
    assert rewards(Terminal(), {"files": {"in": "given\n"}, "checks": [fails]}, {"": "Done."}) == {"": 0.0}
    torn = {"type": "json_equals", "path": "out", "value": {"a": [1]}}
    assert rewards(Terminal(), {"checks": [torn]}, {"": does("echo '{\"a\": [1' > out")}) == {"": 0.0}


def test_inputs_that_must_stay_are_a_condition_and_earn_nothing_themselves():
    task = {
        "files": {"in": "given\n"},
        "checks": [
            {"type": "file_equals", "path": "out", "text": "given"},
            {"type": "file_equals", "path": "too", "text": "given"},
            {"type": "file_unchanged", "path": "in"},
        ],
    }
    answers = {
        "all": does("cp in out; cp in too"),
        "half": does("cp in out"),
        "nothing": "Done.",
        "moved": does("mv in out; cp out too"),
        "changed": does("cp in out; cp in too; echo more >> in"),
    }
    expected = dict.fromkeys(answers, 0.0) | {"all": 1.0}
    assert rewards(Terminal(), task, answers) == expected
    assert rewards(Terminal(partial_credit=True), task, answers) == expected | {"half": 0.5}
    half = results(Terminal(), task, {"half": does("cp in out", "ls")})["half"]
    expected = {"accuracy": 0.0, "passed": 1, "total": 2, "failed_checks": ["file_equals"], "num_shell_calls": 2}
    assert {name: half[name] for name in expected} == expected


def test_links_folders_pipes_and_large_files_do_not_count_as_files():
    task = {"files": {"in": "given\n"}, "checks": [{"type": "file_equals", "path": "d/out", "text": "given"}]}
    answers = {
        "link": does("mkdir d; ln -s ../in d/out"),
        "linked folder": does("mkdir e; cp in e/out; ln -s e d"),
        "pipe": does("mkdir d; python3 -c \"import os; os.mkfifo('d/out')\""),
        "folder": does("mkdir -p d/out"),
        "large": does("mkdir d; (cat in; head -c 3000000 /dev/zero | tr '\\0' ' ') > d/out"),
        "hard link": does("mkdir d; ln in d/out"),
    }
    assert rewards(Terminal(), task, answers) == {**dict.fromkeys(answers, 0.0), "hard link": 1.0}


def test_a_command_that_is_a_check_meets_nothing_of_the_rollout_but_its_files():
    check = {"type": "command_output", "command": "cat in; sort in; python3 -c 'print(1)'", "text": "given\ngiven\n1"}
    tricks = Terminal().cheats({"checks": [check]})
    planted = [*tricks["replace_commands"][:-1], *tricks["plant_startup_files"][:-1]]
    task = {"files": {"in": "given\n"}, "checks": [check]}
    assert rewards(Terminal(), task, {"planted": [*planted, "Done."]}) == {"planted": 1.0}


def test_a_command_that_is_a_check_sees_all_files_or_fails():
    lists = {"type": "command_output", "command": "cat $(find . -type f) | wc -c", "text": "0"}
    answers = {"locked": does("chmod 000 d"), "too many names": does(MANY_LONG_NAMES), "removed": does("rm d/*")}
    assert rewards(Terminal(), {"files": LOGS, "checks": [lists]}, answers) == dict.fromkeys(answers, 0.0) | {
        "removed": 1.0
    }
    new = {"type": "command_output", "command": "cat new", "files": {"new": "new"}, "text": "new"}
    answers = {
        "odd names": does("echo x > $'a\\xff\\n'; echo y > ' '; mkdir -p 'd/…'; echo z > 'd/…/z'"),
        "large": does("head -c 3000000 /dev/zero > large"),
        "in the way": does("mkdir new; echo x > new/x"),
        "too many": does("mkdir d; cd d; for i in $(seq 2100); do : > $i; done"),
        "too large": does("for i in $(seq 17); do head -c 1000000 /dev/zero > $i; done"),
    }
    expected = dict.fromkeys(answers, 0.0) | {"odd names": 1.0, "large": 1.0}
    assert rewards(Terminal(), {"checks": [new]}, answers) == expected


def test_a_lost_sandbox_is_told_to_the_model_and_earns_nothing():
    environment = Terminal()

    async def use() -> tuple[str, Json]:
        task = {"checks": [{"type": "file_exists", "path": "out"}]}
        state = await environment.seed_session(task)
        await state.box.close()
        return await state.run("touch out"), await environment.verify(task, Response(says("done")), state)

    text, score = closing(environment, use())
    assert text.startswith("error: the sandbox has ended")
    assert score["reward"] == 0.0


LOGS = {"d/a.log": "1", "d/b.log": "2"}
MANY_LONG_NAMES = """python3 - <<'end'
import os
os.mkdir("!"); os.chdir("!")
for _ in range(18):
    os.mkdir("x" * 200); os.chdir("x" * 200)
for at in range(300):
    open(f"{at}{'y' * 190}", "w")
end"""


def test_what_is_locked_linked_or_something_else_is_not_absent():
    task = {"files": LOGS, "checks": [{"type": "file_absent", "path": "d/a.log"}]}
    left = {
        "locked": does("chmod 000 d/a.log"),
        "in a locked folder": does("chmod 000 d"),
        "behind a link": does("mv d e; ln -s e d"),
        "a link": does("mv d/a.log c; ln -s ../c d/a.log"),
        "a link to nothing": does("rm d/a.log; ln -s nowhere d/a.log"),
        "a folder": does("rm d/a.log; mkdir d/a.log"),
    }
    assert rewards(Terminal(), task, {**left, "removed": does("rm d/a.log")}) == dict.fromkeys(left, 0.0) | {
        "removed": 1.0
    }
