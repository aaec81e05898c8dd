"""terminal: a shell per rollout, and checks of what it leaves, from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import TaskError
from velodrome.records.conversation import Response
from velodrome.resources_servers.terminal.app import Terminal
from velodrome.resources_servers.terminal.terminal_checks import CHECKS, read_checks
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]
Says = Callable[..., Json]
Shelled = Callable[[str], Awaitable[str]]
HOME = Path(__file__).parents[2] / "velodrome" / "resources_servers" / "terminal"
TASKS = {row["id"]: row for row in map(json.loads, (HOME / "data" / "example.jsonl").read_text().splitlines())}
NOTHING = [{"type": "file_exists", "path": "never"}]


def outputs(*commands: str, files: Json | None = None, **settings: Any) -> list[str]:
    async def main() -> list[str]:
        environment = Terminal(**settings)
        handle = await environment.open({"files": files or {}, "checks": NOTHING})
        try:
            return [await environment.call(handle, "shell", {"command": command}) for command in commands]
        finally:
            await environment.close(handle)
            await environment.aclose()

    return asyncio.run(main())


def scores(
    task: Json, answers: dict[str, Any], environment: Terminal | None = None, **settings: Any
) -> dict[str, Json]:
    async def main() -> dict[str, Json]:
        terminal = environment or Terminal(**settings)
        row = {"responses_create_params": {"input": "do it"}, **task}
        result = {}
        for name, answer in answers.items():
            model = ScriptedModel(answers=answer if isinstance(answer, list) else [answer])
            result[name] = await SimpleAgent(model=model, environment=terminal).run(row)
        await terminal.aclose()
        return result

    return asyncio.run(main())


def rewards(task: Json, answers: dict[str, Any], **settings: Any) -> dict[str, float]:
    return {name: score["reward"] for name, score in scores(task, answers, **settings).items()}


def does(*commands: str) -> list[Any]:
    return [*({"tool_calls": [{"name": "shell", "arguments": {"command": each}}]} for each in commands), "Done."]


def test_the_folder_variables_and_files_stay_from_command_to_command() -> None:
    assert outputs(
        "mkdir -p 'a b' && cd 'a b' && export NAME='it is \"me\"' && other=lost",
        'basename "$PWD"; echo "$NAME$other"; echo text > file',
        "cd ..; cat 'a b/file'",
        "exit 3",
        "ls; unset NAME",
        'echo "[$NAME]"',
    ) == ["(no output)", 'a b\nit is "me"\n', "text\n", "\n(exit code 3)", "a b\n", "[]\n"]


def test_errors_are_seen_where_they_happen_and_exit_codes_are_told() -> None:
    both, missing, syntax = outputs(
        "echo one; ls nowhere 2>&1 | head -c 3; echo; echo two >&2", "no-such-command", "if"
    )
    assert both == "one\nls:\ntwo\n"
    assert "no-such-command" in missing
    assert missing.endswith("(exit code 127)")
    assert "syntax error" in syntax


def test_a_command_that_takes_too_long_or_writes_too_much_is_stopped_and_the_next_one_runs() -> None:
    spinning, waiting, endless, after = outputs(
        "while :; do :; done", "sleep 600", "tr x y < /dev/zero", "echo fine", command_timeout_s=1
    )
    assert spinning.endswith("(stopped: it took too long)")
    assert waiting.endswith("(stopped: it took too long)")
    assert endless.endswith("(stopped: beyond its limit of output)")
    assert len(endless) < 11_000
    assert after == "fine\n"


def test_nothing_keeps_running_after_a_command() -> None:
    text = outputs(
        "(bash -c 'trap \"\" TERM HUP; while :; do date >> beat; done' >/dev/null 2>&1 &)\n"
        "while [ ! -s beat ]; do :; done; echo started",
        "wc -c < beat; for i in $(seq 500); do :; done; wc -c < beat",
    )
    assert text[0] == "started\n"
    first, second = text[1].splitlines()
    assert first == second


@pytest.mark.parametrize(
    "command",
    ["kill -9 $$", "kill -9 -1", "exec sh -c 'exit 0'", "trap - EXIT; cd /", "exec >&-", "\x00", "ulimit -t 0"],
)
def test_what_a_command_does_to_its_shell_is_gone_with_it(command: str) -> None:
    assert outputs(command, "echo fine")[1] == "fine\n"


def test_64_sessions_at_once_neither_mix_nor_remain(says: Says) -> None:
    async def main() -> list[Any]:
        environment = Terminal()

        async def rollout(number: int) -> Any:
            task = {
                "files": {"in": f"{number}\n"},
                "checks": [{"type": "file_equals", "path": "out", "text": str(number)}],
            }
            handle = await environment.open(task)
            await environment.call(handle, "shell", {"command": f"export N={number}"})
            text = await environment.call(handle, "shell", {"command": "cat in > out; cat out; echo $N; ls"})
            score = await environment.score(handle, task, says("done"))
            await environment.close(handle)
            return text, score["reward"]

        results = await asyncio.gather(*map(rollout, range(64)))
        assert environment.sessions == {}
        await environment.aclose()
        return results

    assert asyncio.run(main()) == [(f"{n}\n{n}\nin\nout\n", 1.0) for n in range(64)]


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (
            {"type": "file_equals", "path": "out", "text": "a\nb\n"},
            "printf 'a  \\nb\\n\\n' > out",
            "printf 'a\\n b' > out",
        ),
        (
            {"type": "file_contains", "path": "d/out", "text": "a"},
            "mkdir d; echo bab > d/out",
            "mkdir d; echo b > d/out",
        ),
        ({"type": "file_lacks", "path": "out", "text": "a"}, "echo b > out", ":"),
        ({"type": "file_exists", "path": "out"}, "touch out", "mkdir out"),
        ({"type": "file_absent", "path": "in"}, "rm in", ":"),
        (
            {"type": "json_equals", "path": "out", "value": {"a": [1]}},
            "echo '{ \"a\": [1.0]}' > out",
            "echo '{\"a\": [1' > out",
        ),
        (
            {"type": "sorted_lines", "path": "out", "lines": ["a", "b"]},
            "printf 'b\\n\\na' > out",
            "printf 'a\\nb\\nb' > out",
        ),
        (
            {"type": "command_output", "command": "bash s 2", "text": "4"},
            "echo 'echo $(($1 * 2))' > s",
            "echo 'echo 5' > s",
        ),
        ({"type": "command_output", "command": "cat", "stdin": "x", "text": "x"}, ":", None),
        ({"type": "command_output", "command": "cat in", "files": {"in": "new"}, "text": "new"}, ":", None),
        ({"type": "command_output", "command": "cat in; exit 1", "text": "given"}, None, ":"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_each_check_holds_where_it_should(check: Json, right: str | None, wrong: str | None) -> None:
    task = {"files": {"in": "given\n"}, "checks": [check]}
    answers = {name: does(command) for name, command in (("right", right), ("wrong", wrong)) if command is not None}
    result = rewards(task, answers)
    assert result == {name: float(name == "right") for name in answers}
    assert check["type"] in CHECKS


def test_inputs_that_must_stay_are_a_condition_and_earn_nothing_themselves() -> None:
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
    assert rewards(task, answers) == {"all": 1.0, "half": 0.0, "nothing": 0.0, "moved": 0.0, "changed": 0.0}
    assert rewards(task, answers, partial_credit=True) == {
        "all": 1.0,
        "half": 0.5,
        "nothing": 0.0,
        "moved": 0.0,
        "changed": 0.0,
    }
    script = {"type": "command_output", "command": "bash s", "text": "fine"}
    other = {"type": "file_exists", "path": "out"}
    done = {"files": {"s": "echo fine"}, "checks": [script, other]}
    tried = {"nothing": "Done.", "all": does("touch out"), "broken": does("touch out; echo 'echo no' > s")}
    assert rewards(done, tried, partial_credit=True) == {"nothing": 0.0, "all": 1.0, "broken": 0.0}
    half = scores(task, {"half": does("cp in out", "ls")})["half"]
    assert {name: half[name] for name in ("accuracy", "passed", "total", "failed_checks", "num_shell_calls")} == {
        "accuracy": 0.0,
        "passed": 1,
        "total": 2,
        "failed_checks": ["file_equals"],
        "num_shell_calls": 2,
    }


def test_links_folders_pipes_and_large_files_do_not_count_as_files() -> None:
    task = {"files": {"in": "given\n"}, "checks": [{"type": "file_equals", "path": "d/out", "text": "given"}]}
    answers = {
        "link": does("mkdir d; ln -s ../in d/out"),
        "linked folder": does("mkdir e; cp in e/out; ln -s e d"),
        "pipe": does("mkdir d; python3 -c \"import os; os.mkfifo('d/out')\""),
        "folder": does("mkdir -p d/out"),
        "large": does("mkdir d; (cat in; head -c 3000000 /dev/zero | tr '\\0' ' ') > d/out"),
        "hard link": does("mkdir d; ln in d/out"),
    }
    assert rewards(task, answers) == {**dict.fromkeys(answers, 0.0), "hard link": 1.0}


def test_a_command_that_is_a_check_meets_nothing_of_the_rollout_but_its_files() -> None:
    check = {"type": "command_output", "command": "cat in; sort in; python3 -c 'print(1)'", "text": "given\ngiven\n1"}
    tricks = Terminal().cheats({"checks": [check]})
    planted = [*tricks["replace_commands"][:-1], *tricks["plant_startup_files"][:-1]]
    assert rewards({"files": {"in": "given\n"}, "checks": [check]}, {"planted": [*planted, "Done."]}) == {
        "planted": 1.0
    }


def test_files_that_cannot_be_copied_for_a_command_fail_the_check_and_not_the_rollout() -> None:
    check = {"type": "command_output", "command": "cat new", "files": {"new": "new"}, "text": "new"}
    answers = {
        "odd names": does("echo x > $'a\\xff\\n'; echo y > ' '; mkdir -p 'd/…'; echo z > 'd/…/z'"),
        "in the way": does("mkdir new; echo x > new/x"),
        "too many": does("mkdir d; cd d; for i in $(seq 2100); do : > $i; done"),
        "too large": does("for i in $(seq 17); do head -c 1000000 /dev/zero > $i; done"),
    }
    assert rewards({"checks": [check]}, answers) == {**dict.fromkeys(answers, 0.0), "odd names": 1.0}


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ({}, '"checks"'),
        ({"checks": ["x"]}, '"checks"'),
        ({"checks": [{"type": "file_is"}]}, "there are: file_equals"),
        ({"checks": [{"type": "file_equals", "path": "a"}]}, '"text"'),
        ({"checks": [{"type": "sorted_lines", "path": "a", "lines": "b"}]}, '"lines"'),
        ({"checks": [{"type": "file_unchanged", "path": "a"}]}, "all of them hold"),
        (
            {
                "checks": [{"type": "file_absent", "path": "a"}, {"type": "file_lacks", "path": "b", "text": "x"}],
                "files": {"b": ""},
            },
            "all of them hold",
        ),
        ({"checks": [{"type": "command_output", "command": "a", "text": "b", "files": ["x"]}]}, '"files"'),
        ({"checks": [{"type": "command_output", "command": "a", "text": "b", "stdin": 1}]}, '"stdin"'),
        ({"checks": NOTHING, "files": {"a": 1}}, '"files"'),
        ({"checks": NOTHING, "files": {"../a": "x"}}, '"files".*"../a"'),
    ],
)
def test_a_task_that_cannot_be_checked_is_a_bad_task_before_anything_runs(task: Json, named: str) -> None:
    async def main() -> None:
        environment = Terminal()
        try:
            await environment.open(task)
        finally:
            await environment.aclose()

    with pytest.raises(TaskError, match=named):
        asyncio.run(main())


def test_a_lost_sandbox_is_told_to_the_model_and_earns_nothing(says: Says) -> None:
    async def main() -> tuple[str, Json]:
        environment = Terminal()
        task = {"checks": [{"type": "file_exists", "path": "out"}]}
        state = await environment.seed_session(task)
        await state.box.close()
        result = await state.run("touch out"), await environment.verify(task, Response(says("done")), state)
        await environment.aclose()
        return result

    text, score = asyncio.run(main())
    assert text.startswith("error: the sandbox has ended")
    assert score["reward"] == 0.0


def test_the_reference_commands_solve_their_tasks() -> None:
    for name, task in TASKS.items():
        assert (name, rewards(task, {"": Terminal().reference_answer(task)})) == (name, {"": 1.0})
        assert read_checks(task)
    assert len(TASKS) >= 12


@pytest.mark.parametrize("name", ["rename_notes", "write_script"])
def test_cheats_and_mistakes_earn_nothing_even_with_partial_credit(name: str) -> None:
    cheats = Terminal().cheats(TASKS[name])
    assert rewards(TASKS[name], cheats, partial_credit=True) == dict.fromkeys(cheats, 0.0)
    wrong = Terminal().wrong_answers(TASKS[name])
    assert rewards(TASKS[name], wrong) == dict.fromkeys(wrong, 0.0)
    assert len(cheats) >= 12


def test_the_cheats_are_real_a_checker_with_the_fault_pays_for_them(says: Says) -> None:
    class TrustsAFile(Terminal):
        async def verify(self, task: Json, response: Any, session: Any) -> float:
            return float(b'"reward": 1.0' in (await session.box.read("result.json") or b""))

    class ChecksInItsShell(Terminal):
        async def verify(self, task: Json, response: Any, session: Any) -> float:
            return float(await session.run("cat todos.txt") == "passed\n")

    for owner, cheat in ((TrustsAFile, "forge_the_result_file"), (ChecksInItsShell, "replace_commands")):
        answers = {cheat: owner().cheats(TASKS["list_todos"])[cheat]}
        assert rewards(TASKS["list_todos"], answers, environment=owner()) == {cheat: 1.0}


LOGS = {"d/a.log": "1", "d/b.log": "2"}
MANY_LONG_NAMES = """python3 - <<'end'
import os
os.mkdir("!"); os.chdir("!")
for _ in range(18):
    os.mkdir("x" * 200); os.chdir("x" * 200)
for at in range(300):
    open(f"{at}{'y' * 190}", "w")
end"""


def test_what_is_locked_linked_or_something_else_is_not_absent() -> None:
    task = {"files": LOGS, "checks": [{"type": "file_absent", "path": "d/a.log"}]}
    left = {
        "locked": does("chmod 000 d/a.log"),
        "in a locked folder": does("chmod 000 d"),
        "behind a link": does("mv d e; ln -s e d"),
        "a link": does("mv d/a.log c; ln -s ../c d/a.log"),
        "a link to nothing": does("rm d/a.log; ln -s nowhere d/a.log"),
        "a pipe": does("rm d/a.log; python3 -c 'import os; os.mkfifo(\"d/a.log\")'"),
        "a folder": does("rm d/a.log; mkdir d/a.log"),
    }
    assert rewards(task, {**left, "removed": does("rm d/a.log")}) == dict.fromkeys(left, 0.0) | {"removed": 1.0}


def test_a_command_that_is_a_check_sees_all_files() -> None:
    task = {
        "files": LOGS,
        "checks": [{"type": "command_output", "command": "cat $(find . -type f) | wc -c", "text": "0"}],
    }
    answers = {"locked": does("chmod 000 d"), "too many names": does(MANY_LONG_NAMES), "removed": does("rm d/*")}
    assert rewards(task, answers) == {"locked": 0.0, "too many names": 0.0, "removed": 1.0}
    large = {"checks": [{"type": "command_output", "command": "wc -c < large", "text": "3000000"}]}
    assert rewards(large, {"large": does("head -c 3000000 /dev/zero > large")}) == {"large": 1.0}


def test_a_truth_value_in_json_is_no_number() -> None:
    task = {"checks": [{"type": "json_equals", "path": "a.json", "value": {"n": 1, "is": True}}]}
    answers = {text: does(f"echo '{text}' > a.json") for text in ('{"n": true, "is": 1}', '{"n": 1.0, "is": true}')}
    assert list(rewards(task, answers).values()) == [0.0, 1.0]
