from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.resources_servers.playing import Judge, closing, example_tasks, says
from velodrome.errors import InputError, ModelError, ToolError, VerifyError
from velodrome.resources_servers.code_workers import CodeWorkers
from velodrome.resources_servers.math_with_judge import prepare
from velodrome.resources_servers.math_with_judge.app import MathWithJudge, equal, extract

NEVER_ENDS = r"\boxed{9^{9^{9^{9}}} - 9^{9^{9^{9}}} + 7}"


def judged(judge: Judge, **config: Any) -> MathWithJudge:
    return MathWithJudge(**{"fast_mode": True, "should_use_judge": True, "judge": judge, **config})


def scores(environment: MathWithJudge, *pairs: tuple[dict[str, Any], str]) -> list[Any]:
    """The score of each task and answer, or its error."""

    async def use() -> list[Any]:
        calls = [environment.score("1", task, says(text)) for task, text in pairs]
        return await asyncio.gather(*calls, return_exceptions=True)

    return closing(environment, use())


@pytest.mark.slow
def test_the_library_knows_what_is_equal_and_every_example_accepts_its_own_answer():
    tasks = example_tasks("math_with_judge").values()
    examples = [(task, rf"Therefore \boxed{{{task['expected_answer']}}}.") for task in tasks]
    scored = scores(
        MathWithJudge(verify_processes=1),
        ({"expected_answer": "36"}, r"so it is \boxed{36}"),
        ({"expected_answer": r"\frac{1}{2}"}, r"\boxed{0.5}"),
        ({"expected_answer": "3x^2+2"}, r"the derivative is $2 + 3x^2$"),
        ({"expected_answer": 36}, "Answer: 37"),
        ({"expected_answer": "36"}, "no idea"),
        *examples,
    )
    extracted = {"36": 1.0, r"\frac{1}{2}": 1.0, "2 + 3x^2": 1.0, "37": 0.0, None: 0.0}
    assert {each["extracted_answer"]: each["reward"] for each in scored[:5]} == extracted
    assert [each["library_reward"] for each in scored[:5]] == [*extracted.values()]
    fast = scores(MathWithJudge(fast_mode=True), *examples)
    assert [each["reward"] for each in [*scored[5:], *fast]] == [1.0] * 40


async def started(environment: MathWithJudge) -> int:
    """The id of the library's process, which waits for its next request."""
    await environment.score("1", {"expected_answer": "7"}, says(r"\boxed{7}"))
    [idle] = environment._library._workers._idle  # type: ignore[union-attr]
    return idle.result().child.pid


@pytest.mark.slow
def test_a_score_does_not_depend_on_how_long_the_machine_was_busy():
    environment = MathWithJudge(verify_processes=1, library_timeout_s=0.2)

    async def use() -> Any:
        pid = await started(environment)
        os.kill(pid, signal.SIGSTOP)  # as on a machine that is busy with something else
        scoring = asyncio.create_task(environment.score("1", {"expected_answer": "7"}, says(r"\boxed{7}")))
        done, _ = await asyncio.wait([scoring], timeout=0.6)  # three times what it may compute
        os.kill(pid, signal.SIGCONT)
        assert not done
        return await scoring

    assert closing(environment, use())["reward"] == 1.0


@pytest.mark.slow
def test_wall_time_that_runs_out_or_a_process_that_dies_is_blamed_on_verify_and_no_judge_decides_instead():
    judge = Judge("[[SAME]]", "[[SAME]]")
    environment = judged(judge, fast_mode=False, verify_processes=1, library_wall_timeout_s=2.0)

    async def use(sign: signal.Signals) -> Any:
        os.kill(await started(environment), sign)
        return await environment.score("1", {"expected_answer": "7"}, says(r"\boxed{8}"))

    for sign, problem in ((signal.SIGSTOP, "library_wall_timeout_s"), (signal.SIGSEGV, "signal SIGSEGV")):
        with pytest.raises(VerifyError, match=problem) as caught:
            closing(environment, use(sign))
        assert (type(caught.value), judge.requests) == (VerifyError, [])


@pytest.mark.slow
def test_a_process_of_math_verify_is_ended_by_the_kernel_whatever_its_code_swallows():
    code = """
import asyncio, signal
from velodrome.resources_servers.math_with_judge import library

def compare(expected, text):
    if expected == "broken":
        raise ValueError
    while expected == "hard":
        try:
            sum(iter(int, 1))
        except BaseException:
            pass

library.compare = compare
one = library.LibraryProcess(0.05)
asyncio.run(one.check("", "easy", ""))
try:
    asyncio.run(one.check("", "broken", ""))
except ValueError:
    print("checked", signal.getitimer(signal.ITIMER_PROF)[0], flush=True)
asyncio.run(one.check("", "hard", ""))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("checked 0.0\n", -signal.SIGPROF), done.stderr


def test_what_the_library_raises_is_blamed_on_verify(monkeypatch: pytest.MonkeyPatch):
    async def ask(*_: Any) -> Any:
        raise ToolError("tool: ValueError: no")

    monkeypatch.setattr(CodeWorkers, "ask", ask)
    (error,) = scores(MathWithJudge(), ({"expected_answer": "7"}, r"\boxed{7}"))
    assert (type(error), str(error)) == (VerifyError, "math-verify: tool: ValueError: no")


def test_the_judge_is_asked_in_both_orders_where_the_first_check_says_no():
    judge = Judge("Same value. [[SAME]]", "[[different]] at first, no: [[same]]")
    environment = judged(judge, judge_responses_create_params={"temperature": 0.0})
    task = {"question": "How many?", "expected_answer": "a dozen"}
    (score,) = scores(environment, (task, r"\boxed{twelve}"))
    assert score == {
        "reward": 1.0,
        "library_reward": 0.0,
        "extracted_answer": "twelve",
        "judge_evaluations": [
            {"order": "expected_first", "same": True, "text": "Same value. [[SAME]]"},
            {"order": "answer_first", "same": True, "text": "[[different]] at first, no: [[same]]"},
        ],
    }
    assert [each["input"][-1]["content"] for each in judge.requests] == [
        f"Problem:\nHow many?\n\nFirst answer:\n{first}\n\nSecond answer:\n{second}"
        for first, second in (("a dozen", "twelve"), ("twelve", "a dozen"))
    ]
    assert [each["temperature"] for each in judge.requests] == [0.0, 0.0]


def test_one_no_of_the_judge_is_a_no_and_a_right_answer_does_not_need_it():
    judge = Judge("[[SAME]]", "[[DIFFERENT]]")
    wrong, right = scores(
        judged(judge),
        ({"expected_answer": "12"}, r"\boxed{13}"),
        ({"expected_answer": "12"}, r"\boxed{12}"),
    )
    assert (wrong["reward"], [each["same"] for each in wrong["judge_evaluations"]]) == (0.0, [True, False])
    assert right == {"reward": 1.0, "library_reward": 1.0, "extracted_answer": "12"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ModelError("503 from the judge", status=503), "verify: judge: 503 from the judge"),
        ("I would rather not say.", "judge: no [[SAME]] or [[DIFFERENT]] in its answer: 'I would rather not say.'"),
    ],
)
def test_a_judge_that_fails_is_never_a_zero(answer: str | Exception, problem: str):
    (error,) = scores(judged(Judge(answer)), ({"expected_answer": "12"}, "13"))
    assert isinstance(error, VerifyError)
    assert str(error) == problem


@pytest.mark.slow
def test_an_answer_that_the_library_cannot_finish_is_an_error_or_goes_to_the_judge_and_the_next_one_is_scored():
    limits = {"fast_mode": False, "library_timeout_s": 0.3, "verify_processes": 1}
    tasks = [({"expected_answer": "7"}, text) for text in (NEVER_ENDS, r"\boxed{7}")]
    hung, right = scores(MathWithJudge(**limits), *tasks)
    assert isinstance(hung, VerifyError)
    assert "library_timeout_s=0.3" in str(hung)
    assert right["reward"] == 1.0
    score, _ = scores(judged(Judge("[[DIFFERENT]]"), **limits), *tasks)
    assert score == {
        "reward": 0.0,
        "extracted_answer": None,
        "judge_evaluations": [{"order": "expected_first", "same": False, "text": "[[DIFFERENT]]"}],
    }


def test_a_judge_needs_a_model():
    with pytest.raises(InputError, match="should_use_judge is set but judge_model_server is not"):
        MathWithJudge(should_use_judge=True)


def test_fast_mode_finds_the_answer_and_compares_text_and_numbers():
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


def test_the_public_data_set_becomes_tasks_each_problem_once(tmp_path: Path):
    rows = [published("What is\n\n1+1?", "2"), published("What is 2+2?", "4")] * 100
    output = tmp_path / "deep" / "train.jsonl"
    assert prepare.main(["--output", str(output)], load=lambda: rows) == 0
    first, second = [json.loads(line) for line in output.read_text().splitlines()]
    prompt = [{"role": "user", "content": f"What is\n\n1+1?\n\n{prepare.INSTRUCTION}"}]
    assert first == {
        "responses_create_params": {"input": prompt},
        "question": "What is\n\n1+1?",
        "expected_answer": "2",
    }
    assert (second["question"], second["expected_answer"]) == ("What is 2+2?", "4")


def test_a_data_set_that_breaks_off_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def rows() -> Iterator[dict[str, Any]]:
        yield published("What is 1+1?", "2")
        raise ConnectionError("reset by peer")

    assert prepare.main(["--output", str(tmp_path / "train.jsonl")], load=rows) == 2
    assert list(tmp_path.iterdir()) == []
    assert "ConnectionError: reset by peer" in capsys.readouterr().err
