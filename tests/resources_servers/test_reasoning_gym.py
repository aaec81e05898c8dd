"""reasoning_gym: every family scores as the package does; code in an answer is not run; seeds decide everything."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.errors import InputError, TaskError, VerifyError

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: make test installs it with a C compiler")

from velodrome.resources_servers.reasoning_gym import reasoning_gym_families as families
from velodrome.resources_servers.reasoning_gym.app import ReasoningGym, make_task
from velodrome.resources_servers.reasoning_gym.reasoning_gym_answers import (
    EVALUATED,
    PARSED,
    answer_in,
    reference,
    to_score,
)

Json = dict[str, Any]
NAMES = families.family_names()
HOME = Path(families.__file__).parent
EXAMPLES = [json.loads(line) for line in (HOME / "data" / "example.jsonl").read_text().splitlines()]
STRICTER = {"coin_flip", "complex_arithmetic", "game_of_life_halting", "puzzle24"}
FEW = {  # they take from 4 to 400 ms to generate or to score
    **dict.fromkeys(("knight_swap", "zebra_puzzles", "intermediate_integration", "rush_hour"), 4),
    **dict.fromkeys(("futoshiki", "puzzle24", "quantum_lock", "sokoban", "simple_integration"), 10),
    **dict.fromkeys(("polynomial_equations", "sudoku", "countdown", "rubiks_cube", "advanced_geometry", "rearc"), 30),
    **dict.fromkeys(("polynomial_multiplication", "game_of_life", "game_of_life_halting", "word_ladder", "jugs"), 50),
}
GARBAGE = (
    *("", " ", "banana", "0", "-1", "[]", "{}", "[[1,2],[3,4]]", "null", '"x"', "(", "(" * 500, "1/0", "inf", "nan"),
    *(
        "1e400",
        "\ud800",
        "\x00",
        "١٢٣٤٥٦",
        '{"a": 1}',
        "[null]",
        '{"a": null}',
        "9" * 5000,
        "1 " * 2000,
        "\n\n",
        "R1 C1",
    ),
    *("Move disk 1 from Peg 1 to Peg 9", "A+1", "F999999999", "True", "1 × 2", "3i", "[" * 3000, "a" * 200_000),
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
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of programs that codeio runs
def test_ten_thousand_tasks_of_all_families_score_as_the_package_says() -> None:
    count, different = 0, []
    for family in NAMES:
        previous: str | None = None
        for index in range(FEW.get(family, 118)):
            task, count = row(make_task(family, 11, index, {})), count + 1
            theirs = families.make_entry(family, families.spread_seed(11, family), index, {})
            right = reference(family, task["expected_answer"], task["metadata"])
            assert right is not None
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
    assert different == []
    assert len(NAMES) == 105
    assert count >= 10_000


@pytest.mark.slow
def test_garbage_is_scored_by_every_family_and_never_right() -> None:
    for family in NAMES:
        task = row(make_task(family, 12, 0, {}))
        for answer in GARBAGE:
            reward = families.score(family, {}, answer, entry_of(task), 10.0)
            assert 0.0 <= reward < 1.0 or answer == task["expected_answer"], (family, answer[:40])


def test_a_scorer_that_cannot_score_a_right_answer_either_is_at_fault() -> None:
    task = row(make_task("prime_factorization", 1, 0, {}))
    environment = ReasoningGym(executor="inline")

    async def score(changed: Json) -> Json:
        return await environment.score("", changed, _says("<answer>two times five</answer>"))

    assert asyncio.run(score(task))["reward"] == 0.0
    with pytest.raises(VerifyError, match="invalid literal"):
        asyncio.run(score({**task, "expected_answer": "two times five, they say"}))


@pytest.mark.parametrize("family", sorted(EVALUATED | PARSED))
def test_code_never_reaches_a_scorer_that_evaluates(family: str, tmp_path: Path) -> None:
    task = row(make_task(family, 1, 0, {}))
    entry, trap = entry_of(task), tmp_path / "trap"
    for code in (
        f"open({str(trap)!r}, 'w')",
        f"[open({str(trap)!r}, 'w')]",
        f"(lambda: open({str(trap)!r}, 'w'))()",
        f"[x for x in [open({str(trap)!r}, 'w')]]",
        f"f'{{open({str(trap)!r}, chr(119))}}'",
        f"sin.__globals__['__builtins__']['open']({str(trap)!r}, 'w')",
        f"ｏｐｅｎ({str(trap)!r}, 'w')",
        f"\f open({str(trap)!r}, 'w')",
        f"1 if open({str(trap)!r}, 'w') else 2",
        "9**9**9**9",
        "[0] * 10**12",
    ):
        assert families.score(family, {}, code, entry, 10.0) <= 0.01, code  # two scorers give that for anything
    assert not trap.exists()
    assert to_score(family, str(entry["answer"]), entry) == entry["answer"]


@pytest.mark.parametrize("family", sorted(EVALUATED))
def test_code_that_is_too_deep_to_be_looked_at_is_not_run(family: str, tmp_path: Path) -> None:
    entry, trap = entry_of(row(make_task(family, 1, 0, {}))), tmp_path / "trap"
    for depth in range(2600, 3010):  # somewhere there `ast.parse` gives up and `eval`, a few frames above it, does not
        families.score(family, {}, f"(open({str(trap)!r}, 'w'), {'-' * depth}1)", entry, 10.0)
    assert not trap.exists()


@pytest.mark.parametrize("family", sorted(EVALUATED))
@pytest.mark.parametrize("answer", ["{}", "[{}]", "[[{}]]"])
@pytest.mark.parametrize("name", ["oracle_answer", "valid_solutions"])
def test_a_name_of_the_scorer_is_no_answer(family: str, answer: str, name: str) -> None:
    for index in range(3):
        entry = entry_of(row(make_task(family, 7, index, {})))
        assert families.score(family, {}, answer.format(name), entry, 10.0) == 0.0


@pytest.mark.parametrize("family", ["countdown", "puzzle24"])
def test_a_sum_has_no_other_numbers_than_those_given(family: str) -> None:
    entry = entry_of(row(make_task(family, 7, 0, {})))
    numbers = "+".join(map(str, entry["metadata"]["numbers"]))
    answer = f"({numbers})*(E-E)" + "+E/E" * entry["metadata"].get("target", 24)
    assert by_package(family, answer, entry) == 1.0
    assert families.score(family, {}, answer, entry, 10.0) == 0.01  # as for any text
    assert families.score(family, {}, entry["answer"] + " ", entry, 10.0) == 1.0


def test_almost_24_is_not_24() -> None:
    entry = {"question": "", "answer": "3*8/(2-1)", "metadata": {"numbers": [1, 2, 3, 8]}}
    assert by_package("puzzle24", "3*8+1/2", entry) == 1.0
    scores = [families.score("puzzle24", {}, answer, entry, 10.0) for answer in ("3*8+1/2", "8*3*(2-1)", "3+8+2+1")]
    assert scores == [0.01, 1.0, 0.01]


@pytest.mark.parametrize(
    ("family", "answer"),
    [
        ("coin_flip", "0"),
        ("complex_arithmetic", "nan"),
        ("game_of_life_halting", "who knows"),
        ("puzzle24", "6 * 4 * 1 * 1"),
        ("simple_integration", "Integral({integrand}, {variable})"),
    ],
)
def test_full_marks_for_nothing_are_refused(family: str, answer: str) -> None:
    theirs = make_task(family, 1, 0, {})
    answer = answer.format(**theirs["metadata"]) if "{" in answer else answer
    entry = entry_of(row(theirs))
    assert by_package(family, answer, entry) == 1.0
    assert families.score(family, {}, answer, entry, 10.0) == 0.0


def test_a_scorer_that_takes_too_long_gives_nothing() -> None:
    task = row(make_task("simple_integration", 1, 0, {}))
    slow = "+".join(f"sin(x**{at})**{at}*cos(x+{at})**9*exp(tan(x)**{at})" for at in range(2, 40))
    assert families.score("simple_integration", {}, slow, entry_of(task), 0.2) == 0.0


@pytest.mark.slow
def test_a_seed_gives_the_same_tasks_in_every_process_and_in_any_order() -> None:
    code = (
        "import hashlib, json, sys\n"
        "from velodrome.resources_servers.reasoning_gym.app import make_task\n"
        "from velodrome.resources_servers.reasoning_gym import reasoning_gym_families as families\n"
        "order = [0, 1, 2] if sys.argv[1] == 'up' else [2, 1, 0]\n"
        "for name in families.family_names():\n"
        "    made = {at: json.dumps(make_task(name, 7, at, {})) for at in order}\n"
        "    print(name, hashlib.sha256(''.join(made[at] for at in range(3)).encode()).hexdigest())\n"
    )

    def digests(order: str, hash_seed: str) -> dict[str, str]:
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code, order]
        out = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
        return dict(line.split() for line in out.splitlines())

    first = digests("up", "0")
    assert len(first) == 105
    assert digests("down", "0") == first
    other = digests("up", "5")
    assert {name for name in first if first[name] != other[name]} <= families.HASHED


def test_neighbouring_seeds_share_nothing() -> None:
    def questions(seed: int) -> set[str]:
        return {make_task("gsm_symbolic", seed, at, {})["responses_create_params"]["input"][1]["content"] for at in AT}

    AT = (*range(20), 499, 500, 501, 1000)  # across blocks
    assert len(questions(1)) == len(AT)
    assert not questions(1) & questions(2)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("<answer>3</answer> no: <answer>\n4 \n</answer> done", "4"),
        ("so \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{3} and <answer>4</answer>", "4"),
        ("<answer>4", None),
        ("4</answer>", None),
        ("\\boxed{4", None),
        ("4", None),
        ("<answer>" * 300_000, None),
        ("\\boxed{" + "{" * 300_000, None),
    ],
)
def test_an_answer_is_in_tags_or_in_a_box(text: str, answer: str | None) -> None:
    assert answer_in(text) == answer


@pytest.mark.parametrize("name", ["family", "metadata", "expected_answer"])
def test_a_task_without_a_field_is_blamed(name: str) -> None:
    task = {key: value for key, value in EXAMPLES[0].items() if key != name}
    with pytest.raises(TaskError, match=f'no "{name}"'):
        asyncio.run(ReasoningGym(executor="inline").score("", task, _says("<answer>1</answer>")))


def test_unknown_families_and_parameters_are_one_line() -> None:
    environment = ReasoningGym(executor="inline")
    with pytest.raises(InputError, match="no family mazes in reasoning-gym"):
        environment.generate(1, 0, families="maze,mazes")
    with pytest.raises(TaskError, match='"config" does not fit maze: TypeError'):
        environment.generate(1, 0, families="maze", config={"sise": 3})
    with pytest.raises(InputError, match="of one family"):
        environment.generate(1, 0, families="maze,lcm", config={"size": 3})


def _says(text: str) -> Json:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"output": [message]}
