"""reasoning_gym: every family scores as the package does; code in an answer is not run; seeds decide everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.resources_servers.playing import Json, example_tasks, score
from velodrome.environments.reasoning_gym.cpu_limit import within_cpu
from velodrome.errors import InputError, TaskError, VerifyError

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: make test installs it with a C compiler")

from velodrome.environments.reasoning_gym import families
from velodrome.environments.reasoning_gym.answers import (
    EVALUATED,
    PARSED,
    answer_in,
    reference,
    to_score,
)
from velodrome.environments.reasoning_gym.app import ReasoningGym, make_task

NAMES = families.family_names()
STRICTER = {"coin_flip", "complex_arithmetic", "game_of_life_halting", "puzzle24"}
FEW = dict.fromkeys(("knight_swap", "zebra_puzzles", "intermediate_integration", "rush_hour"), 2)  # up to 400 ms each
GARBAGE = (
    *("", " ", "banana", "0", "-1", "[]", "{}", "[[1,2],[3,4]]", "null", '"x"', "(", "(" * 500, "1/0", "inf", "nan"),
    *("\ud800", "\x00", "١٢٣٤٥٦", '{"a": 1}', "[null]", '{"a": null}', "9" * 5000, "1 " * 2000, "True", "3i"),
    *("Move disk 1 from Peg 1 to Peg 9", "A+1", "F999999999", "1 × 2", "[" * 3000, "a" * 200_000),
)


def row(task: Json) -> Json:
    """The task as it is read from a file."""
    return dict(orjson.loads(orjson.dumps(task)))


def entry_of(task: Json) -> Json:
    question = task["responses_create_params"]["input"][-1]["content"]
    return families.as_entry(task["family"], question, task["expected_answer"], task["metadata"])


def by_package(family: str, answer: str, entry: Json) -> float:
    """What the package's scorer gives for its own entry; an answer that it cannot read is worth nothing."""
    dataset = families._dataset(family, 0, b"{}")
    with families._quiet():
        try:
            return min(1.0, dataset.score_answer(answer, entry))
        except Exception:  # noqa: BLE001 - whatever the package raises
            return 0.0


@pytest.mark.slow
@pytest.mark.parametrize("most", [6, pytest.param(60, marks=pytest.mark.chaos)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of programs that codeio runs
def test_tasks_of_all_families_score_as_the_package_says_and_garbage_is_never_right(most: int):
    different = []
    for family in NAMES:
        previous: str | None = None
        for index in range(min(FEW.get(family, most), most)):
            task = row(make_task(family, 11, index, {}))
            theirs = families.make_entry(family, families.spread_seed(11, family), index, {})
            right = reference(family, task["expected_answer"], task["metadata"])
            assert (right is None) == (family in ("boxnet", "rush_hour"))
            assert theirs["question"] == task["responses_create_params"]["input"][-1]["content"] or family == "codeio"
            for answer in (right, previous, "banana"):
                if answer is None:
                    continue
                ours = min(1.0, families.score(family, {}, answer, entry_of(task), 10.0))
                package = by_package(family, answer, {**theirs, "answer": task["expected_answer"]})
                least = 0.25 if family == "propositional_logic" else 1.0  # where premises say nothing
                if (answer is right and ours < least) or (
                    ours != package if family not in STRICTER else ours > package
                ):
                    different.append((task["id"], answer, ours, package))
            previous = right
        for answer in GARBAGE:
            reward = families.score(family, {}, answer, entry_of(task), 10.0)
            assert 0.0 <= reward < 1.0 or task["expected_answer"] in (answer, f"{answer}.0"), (family, answer[:40])
    assert different == []
    assert len(NAMES) == 105


def test_a_scorer_that_cannot_score_a_right_answer_either_is_at_fault():
    task = row(make_task("prime_factorization", 1, 0, {}))
    environment = ReasoningGym(executor="inline")

    answer = "<answer>two times five</answer>"
    assert score(environment, task, answer)["reward"] == 0.0
    with pytest.raises(VerifyError, match="invalid literal"):
        score(environment, {**task, "expected_answer": "two times five, they say"}, answer)


def test_a_damaged_task_of_a_family_without_a_right_answer_is_at_fault():
    task = row(make_task("boxnet", 1, 0, {}))
    environment = ReasoningGym(executor="inline")
    assert score(environment, task, "<answer>[1]</answer>")["reward"] == 0.0
    with pytest.raises(VerifyError, match="initial_state"):
        score(environment, {**task, "metadata": {}}, "<answer>[1]</answer>")


@pytest.mark.parametrize("family", sorted(EVALUATED | PARSED))
def test_code_never_reaches_a_scorer_that_evaluates(family: str, tmp_path: Path):
    task = row(make_task(family, 1, 0, {}))
    entry, trap = entry_of(task), tmp_path / "trap"
    for code in (
        f"open({str(trap)!r}, 'w')",
        f"(lambda: open({str(trap)!r}, 'w'))()",
        f"[x for x in [open({str(trap)!r}, 'w')]]",
        f"sin.__globals__['__builtins__']['open']({str(trap)!r}, 'w')",
        f"ｏｐｅｎ({str(trap)!r}, 'w')",
        f"\f open({str(trap)!r}, 'w')",
        "9**9**9**9",
        "[0] * 10**12",
    ):
        assert families.score(family, {}, code, entry, 10.0) <= 0.01, code  # two scorers give that for anything
    assert not trap.exists()
    assert to_score(family, str(entry["answer"]), entry) == entry["answer"]


@pytest.mark.parametrize("family", sorted(EVALUATED))
def test_code_that_is_too_deep_to_be_looked_at_is_not_run(family: str, tmp_path: Path):
    entry, trap = entry_of(row(make_task(family, 1, 0, {}))), tmp_path / "trap"
    for depth in range(2600, 3010, 2):  # somewhere there `ast.parse` gives up and `eval`, a few frames above, does not
        families.score(family, {}, f"(open({str(trap)!r}, 'w'), {'-' * depth}1)", entry, 10.0)
    assert not trap.exists()


@pytest.mark.parametrize("family", sorted(EVALUATED))
def test_a_name_of_the_scorer_is_no_answer(family: str):
    entry = entry_of(row(make_task(family, 7, 0, {})))
    for name in ("oracle_answer", "valid_solutions"):
        for answer in (name, f"[{name}]", f"[[{name}]]"):
            assert families.score(family, {}, answer, entry, 10.0) == 0.0


@pytest.mark.parametrize("family", ["countdown", "puzzle24"])
def test_a_sum_has_no_other_numbers_than_those_given(family: str):
    entry = entry_of(row(make_task(family, 7, 0, {})))
    numbers = "+".join(map(str, entry["metadata"]["numbers"]))
    answer = f"({numbers})*(E-E)" + "+E/E" * entry["metadata"].get("target", 24)
    assert by_package(family, answer, entry) == 1.0
    assert families.score(family, {}, answer, entry, 10.0) == 0.01  # as for any text
    assert families.score(family, {}, entry["answer"] + " ", entry, 10.0) == 1.0


@pytest.mark.parametrize(
    ("family", "answer"),
    [
        ("coin_flip", "0"),
        ("puzzle24", "6 * 4 * 1 * 1"),
        ("simple_integration", "Integral({integrand}, {variable})"),
    ],
)
def test_full_marks_for_nothing_are_refused(family: str, answer: str):
    theirs = make_task(family, 1, 0, {})
    answer = answer.format(**theirs["metadata"]) if "{" in answer else answer
    entry = entry_of(row(theirs))
    assert by_package(family, answer, entry) == 1.0
    assert families.score(family, {}, answer, entry, 10.0) == 0.0


class Held(ReasoningGym):
    """A scorer that no exception ends."""

    def verify(self, task: Json, response: Any) -> Json:
        return within_cpu(0.05, self.hold)

    def hold(self) -> Json:
        while True:
            try:
                sum(iter(int, 1))  # never ends
            except BaseException:  # noqa: BLE001 - as careless code has it
                pass


@pytest.mark.slow
def test_an_answer_that_holds_its_scorer_until_the_kernel_ends_it_earns_nothing():
    task = next(iter(example_tasks("reasoning_gym").values()))
    expected = {"reward": 0.0, "accuracy": 0.0, "extracted_answer": "1", "family": task["family"]}
    assert score(Held(worker_processes=1), task, "<answer>1</answer>") == expected


@pytest.mark.slow
def test_a_seed_gives_the_same_tasks_in_every_process_and_in_any_order():
    code = (
        "import hashlib, json, sys\n"
        "from velodrome.environments.reasoning_gym.app import make_task\n"
        "from velodrome.environments.reasoning_gym import families\n"
        "order = [0, 1, 2] if sys.argv[1] == 'up' else [2, 1, 0]\n"
        "for name in families.family_names():\n"
        "    made = {at: json.dumps(make_task(name, 7, at, {})) for at in order}\n"
        "    print(name, hashlib.sha256(''.join(made[at] for at in range(3)).encode()).hexdigest())\n"
    )

    def digests(order: str, hash_seed: str) -> dict[str, str]:
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        out = subprocess.check_output([sys.executable, "-c", code, order], env=environ, text=True)
        return dict(line.split() for line in out.splitlines())

    first, other = digests("up", "0"), digests("down", "5")
    assert len(first) == 105
    assert {name for name in first if first[name] != other[name]} <= families.HASHED


def test_an_answer_is_in_tags_or_in_a_box():
    answers = {
        "<answer>3</answer> no: <answer>\n4 \n</answer> done": "4",
        "so \\boxed{\\frac{1}{2}}": "\\frac{1}{2}",
        "<answer>" * 300_000: None,
        "\\boxed{" + "{" * 300_000: None,
    }
    assert {text: answer_in(text) for text in answers} == answers


def test_unknown_families_and_parameters_and_tasks_without_a_field_are_one_line():
    environment = ReasoningGym(executor="inline")
    task = next(iter(example_tasks("reasoning_gym").values()))
    for name in ("family", "metadata", "expected_answer"):
        with pytest.raises(TaskError, match=f'no "{name}"'):
            score(environment, {key: value for key, value in task.items() if key != name}, "<answer>1</answer>")
    with pytest.raises(InputError, match="no family mazes in reasoning-gym"):
        environment.generate(1, 0, families="maze,mazes")
    with pytest.raises(TaskError, match='"config" does not fit maze: TypeError'):
        environment.generate(1, 0, families="maze", config={"sise": 3})
    with pytest.raises(InputError, match="of one family"):
        environment.generate(1, 0, families="maze,lcm", config={"size": 3})
