from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from patience import DEADLINE_S

from velodrome.errors import InputError, ModelError, TaskError, VerifyError
from velodrome.resources_servers.math_with_judge import prepare
from velodrome.resources_servers.math_with_judge.app import MathWithJudge
from velodrome.resources_servers.math_with_judge.quick import equal, extract

Says = Callable[..., dict[str, Any]]
HOME = Path(__file__).parents[2]
NEVER_ENDS = r"\boxed{9^{9^{9^{9}}} - 9^{9^{9^{9}}} + 7}"


class Scripted:
    """A judge that gives the answers it was given, and counts how many are asked at once."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.at_once = self.most_at_once = 0

    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"output": [{"type": "message", "role": "assistant", "content": answer}]}

    async def aclose(self) -> None: ...


def judged(judge: Scripted, **config: Any) -> MathWithJudge:
    return MathWithJudge(**{"fast_mode": True, "should_use_judge": True, "judge": judge, **config})


def working(
    environment: MathWithJudge, use: Callable[[], Awaitable[Any]], run: Callable[..., Any] = asyncio.run
) -> Any:
    async def main() -> Any:
        try:
            return await use()
        finally:
            await environment.aclose()

    return run(main())


def scores(
    environment: MathWithJudge, *pairs: tuple[dict[str, Any], dict[str, Any]], run: Callable[..., Any] = asyncio.run
) -> list[Any]:
    async def use() -> list[Any]:
        calls = [environment.score("1", task, response) for task, response in pairs]
        return await asyncio.gather(*calls, return_exceptions=True)

    results: list[Any] = working(environment, use, run)
    return results


def example_answers(says: Says) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    path = HOME / "velodrome" / "resources_servers" / "math_with_judge" / "data" / "example.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row, says(rf"Therefore \boxed{{{row['expected_answer']}}}.")) for row in rows]


def test_the_library_knows_what_is_equal_and_every_example_accepts_its_own_answer(says: Says) -> None:
    scored = scores(
        MathWithJudge(verify_processes=1),
        ({"expected_answer": "36"}, says(r"so it is \boxed{36}")),
        ({"expected_answer": r"\frac{1}{2}"}, says(r"\boxed{0.5}")),
        ({"expected_answer": "3x^2+2"}, says(r"the derivative is $2 + 3x^2$")),
        ({"expected_answer": 36}, says("Answer: 37")),
        ({"expected_answer": "36"}, says("no idea")),
        *example_answers(says),
        run=uvloop.run,
    )
    assert [(each["reward"], each["library_reward"], each["extracted_answer"]) for each in scored[:5]] == [
        (1.0, 1.0, "36"),
        (1.0, 1.0, r"\frac{1}{2}"),
        (1.0, 1.0, "2 + 3x^2"),
        (0.0, 0.0, "37"),
        (0.0, 0.0, None),
    ]
    fast = scores(MathWithJudge(fast_mode=True), *example_answers(says))
    assert [each["reward"] for each in [*scored[5:], *fast]] == [1.0] * 40


def test_an_answer_that_never_ends_is_killed_and_the_next_one_is_scored(says: Says) -> None:
    environment = MathWithJudge(verify_processes=1, library_timeout_s=0.2)
    hung, right = scores(
        environment,
        ({"expected_answer": "7"}, says(NEVER_ENDS)),
        ({"expected_answer": "7"}, says(r"\boxed{7}")),
    )
    assert isinstance(hung, VerifyError)
    assert "library_timeout_s=0.2" in str(hung)
    assert right["reward"] == 1.0


async def started(environment: MathWithJudge) -> int:
    """The id of a process of the library's that waits for its first request."""
    assert environment._library is not None
    process = await environment._library._start()
    environment._library._idle.append(process)
    return process.pid


def test_a_score_does_not_depend_on_how_long_the_machine_was_busy(says: Says) -> None:
    environment = MathWithJudge(verify_processes=1, library_timeout_s=0.2)

    async def use() -> Any:
        pid = await started(environment)
        os.kill(pid, signal.SIGSTOP)  # as on a machine that is busy with something else
        scoring = asyncio.create_task(environment.score("1", {"expected_answer": "7"}, says(r"\boxed{7}")))
        done, _ = await asyncio.wait([scoring], timeout=0.6)  # three times what it may compute
        os.kill(pid, signal.SIGCONT)
        assert not done
        return await scoring

    assert working(environment, use)["reward"] == 1.0


def test_wall_time_that_runs_out_is_blamed_on_verify_and_no_judge_decides_instead(says: Says) -> None:
    judge = Scripted("[[SAME]]", "[[SAME]]")
    environment = judged(judge, fast_mode=False, verify_processes=1, library_wall_timeout_s=0.2)

    async def use() -> Any:
        os.kill(await started(environment), signal.SIGSTOP)
        return await environment.score("1", {"expected_answer": "7"}, says(r"\boxed{8}"))

    with pytest.raises(VerifyError, match="library_wall_timeout_s") as caught:
        working(environment, use)
    assert (type(caught.value), judge.requests) == (VerifyError, [])


def test_a_library_process_that_dies_is_an_error_and_is_replaced(says: Says) -> None:
    environment = MathWithJudge(verify_processes=1, library_timeout_s=60)
    task = {"expected_answer": "7"}

    async def use() -> tuple[Any, Any]:
        await environment.score("1", task, says(r"\boxed{7}"))
        assert environment._library is not None
        (process,) = environment._library._all
        hanging = asyncio.create_task(environment.score("1", task, says(NEVER_ENDS)))
        await asyncio.sleep(0)  # one step: the process is taken
        assert environment._library._idle == []
        os.kill(process.pid, signal.SIGKILL)
        (died,) = await asyncio.gather(hanging, return_exceptions=True)
        return died, await environment.score("1", task, says(r"\boxed{7}"))

    died, after = working(environment, use)
    assert isinstance(died, VerifyError)
    assert "its process ended before it answered" in str(died)
    assert after["reward"] == 1.0


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its child")
def test_the_processes_die_with_a_collector_that_is_killed() -> None:
    code = """
import asyncio
from velodrome.resources_servers.math_with_judge.library import Library
async def main():
    library = Library(1, 600.0, 600.0)
    await library.check("7", "7")
    task = asyncio.create_task(library.check("7", r"%s"))
    await asyncio.sleep(0)
    print(next(iter(library._all)).pid, flush=True)
    await task
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code % NEVER_ENDS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = os.pidfd_open(int(parent.stdout.readline()))
        alive = select.select([worker], [], [], 0)
        parent.kill()
    ended = select.select([worker], [], [], 60)
    if not ended[0]:
        signal.pidfd_send_signal(worker, signal.SIGKILL)
    os.close(worker)
    assert (alive[0], ended[0]) == ([], [worker])


def test_the_judge_is_asked_in_both_orders_where_the_first_check_says_no(says: Says) -> None:
    judge = Scripted("Same value. [[SAME]]", "[[different]] at first, no: [[same]]")
    environment = judged(judge, judge_responses_create_params={"temperature": 0.0})
    task = {"question": "How many?", "expected_answer": "a dozen"}
    (score,) = scores(environment, (task, says(r"\boxed{twelve}")))
    assert score == {
        "reward": 1.0,
        "library_reward": 0.0,
        "extracted_answer": "twelve",
        "judge_evaluations": [
            {"order": "expected_first", "same": True, "text": "Same value. [[SAME]]"},
            {"order": "answer_first", "same": True, "text": "[[different]] at first, no: [[same]]"},
        ],
    }
    first, second = [each["input"][-1]["content"] for each in judge.requests]
    assert first == "Problem:\nHow many?\n\nFirst answer:\na dozen\n\nSecond answer:\ntwelve"
    assert second == "Problem:\nHow many?\n\nFirst answer:\ntwelve\n\nSecond answer:\na dozen"
    assert [each["temperature"] for each in judge.requests] == [0.0, 0.0]


def test_one_no_of_the_judge_is_a_no_and_a_right_answer_does_not_need_it(says: Says) -> None:
    judge = Scripted("[[SAME]]", "[[DIFFERENT]]")
    wrong, right = scores(
        judged(judge),
        ({"expected_answer": "12"}, says(r"\boxed{13}")),
        ({"expected_answer": "12"}, says(r"\boxed{12}")),
    )
    assert (wrong["reward"], [each["same"] for each in wrong["judge_evaluations"]]) == (0.0, [True, False])
    assert right == {"reward": 1.0, "library_reward": 1.0, "extracted_answer": "12"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ModelError("503 from the judge", status=503), "verify: judge: 503 from the judge"),
        ("I would rather not say.", "judge: no [[SAME]] or [[DIFFERENT]] in its answer: 'I would rather not say.'"),
        (RuntimeError("boom"), "verify: judge: RuntimeError: boom"),
    ],
)
def test_a_judge_that_fails_is_never_a_zero(says: Says, answer: str | Exception, problem: str) -> None:
    (error,) = scores(judged(Scripted(answer)), ({"expected_answer": "12"}, says("13")))
    assert isinstance(error, VerifyError)
    assert str(error) == problem


def test_the_judge_has_a_limit_of_its_own(says: Says) -> None:
    judge = Scripted(*["[[DIFFERENT]]"] * 20)
    scores(judged(judge, judge_max_concurrent=3), *[({"expected_answer": "12"}, says("13"))] * 20)
    assert (len(judge.requests), judge.most_at_once) == (20, 3)


def test_an_answer_the_library_cannot_finish_goes_to_the_judge(says: Says) -> None:
    judge = Scripted("[[DIFFERENT]]")
    environment = judged(judge, fast_mode=False, library_timeout_s=0.3, verify_processes=1)
    (score,) = scores(environment, ({"expected_answer": "7"}, says(NEVER_ENDS)))
    assert score == {
        "reward": 0.0,
        "extracted_answer": None,
        "judge_evaluations": [{"order": "expected_first", "same": False, "text": "[[DIFFERENT]]"}],
    }


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"should_use_judge": True}, "should_use_judge is set but judge_model_server is not"),
        ({"library_timeout_s": -1}, "library_timeout_s"),
        ({"verify_processes": "two"}, "verify_processes"),
    ],
)
def test_mistakes_in_the_config_are_named(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        MathWithJudge(**config)


def test_without_math_verify_the_way_out_is_named() -> None:
    code = """
import sys
sys.modules["math_verify"] = None
import importlib.util
importlib.util.find_spec = lambda name: None
from velodrome.errors import InputError
from velodrome.resources_servers.math_with_judge.app import MathWithJudge
MathWithJudge(fast_mode=True)
try:
    MathWithJudge()
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout == 'math_with_judge needs math-verify: pip install "velodrome[math]", or set fast_mode: true\n'


@pytest.mark.parametrize("task", [{}, {"expected_answer": " "}, {"expected_answer": ["36"]}])
def test_a_task_without_an_answer_is_a_bad_task(says: Says, task: dict[str, Any]) -> None:
    (error,) = scores(MathWithJudge(fast_mode=True), (task, says("36")))
    assert isinstance(error, TaskError)


def test_fast_mode_finds_the_answer_and_compares_text_and_numbers() -> None:
    for text, answer in [
        (r"so \boxed{1} and then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{never closed", None),
        ("The answer is 42.", "42."),
        ("Answer: $x = 3$", "x = 3$"),
        ("We find 12 and then 15 apples", "15"),
        ("nothing", None),
    ]:
        assert extract(text) == answer
    same = [("42.", "42"), (r"\dfrac{1}{2}", "1/2"), ("0.5", r"\frac{1}{2}"), (r"\text{Tuesday}", "tuesday")]
    same += [("1,000", "1000"), (r"50\%", "50"), ("x+1", "x + 1")]
    others = [("x+2", "x+1"), ("", ""), ("$", "$"), ("41", "42")]
    assert [equal(*pair) for pair in (*same, *others)] == [True] * len(same) + [False] * len(others)


def published(question: str, answer: str) -> dict[str, Any]:
    """A row as the data set has them."""
    content = (
        "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
        f"$Answer (without quotes) where $Answer is the answer to the problem.\n\n{question}\n\n"
        'Remember to put your answer on its own line after "Answer:".'
    )
    return {
        "prompt": [{"role": "user", "content": content}],
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"index": "9a9b6eb4"},
    }


def test_the_public_data_set_becomes_tasks_each_problem_once(tmp_path: Path) -> None:
    rows = [published("What is\n\n1+1?", "2"), published("What is 2+2?", "4")] * 100
    output = tmp_path / "deep" / "train.jsonl"
    assert prepare.main(["--output", str(output)], load=lambda: rows) == 0
    assert [json.loads(line) for line in output.read_text().splitlines()] == [
        {
            "responses_create_params": {"input": [{"role": "user", "content": f"{question}\n\n{prepare.INSTRUCTION}"}]},
            "question": question,
            "expected_answer": answer,
        }
        for question, answer in [("What is\n\n1+1?", "2"), ("What is 2+2?", "4")]
    ]


def test_a_data_set_that_breaks_off_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield published("What is 1+1?", "2")
        raise ConnectionError("reset by peer")

    assert prepare.main(["--output", str(tmp_path / "train.jsonl")], load=rows) == 2
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == (
        "BytedTsinghua-SIA/DAPO-Math-17k cannot be read (is its hub reachable?): ConnectionError: reset by peer\n"
    )
