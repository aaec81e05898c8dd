"""Every check finds what is planted for it, and says nothing about a clean run."""

from __future__ import annotations

import io
import random
import re
import warnings
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import planted
from tests.support.planted import PLANTS, Row, Rows, answered, clean, findings_of, names, truncated, twice, write
from tests.support.seed_snippets import BROKEN
from velodrome.checks import CHECKS, WHILE_COLLECTING, Checks, Finding, read_checks, run_checks, short, worst
from velodrome.records.facts import RowFacts

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.mark.parametrize(
    ("name", "severity", "plant", "count", "lines", "also"),
    PLANTS,
    ids=[name for name, *_ in PLANTS],
)
def test_a_planted_problem_is_found_where_it_is_and_nothing_else_is(
    tmp_path: Path, name: str, severity: str, plant: Any, count: int, lines: list[int], also: set[str]
):
    rows: Rows = clean()
    plant(rows)
    path = write(tmp_path / "r.jsonl", rows)
    findings = run_checks(path)
    assert {finding.name for finding in findings} == {name, *also}
    one = next(finding for finding in findings if finding.name == name)
    assert (one.severity, one.count, one.examples, one.files) == (severity, count, lines, [str(path)] * len(lines))
    assert run_checks(path, only=[name]) == [one]
    assert one.message.isprintable()
    random.Random(1).shuffle(rows)
    again = [replace(each, examples=[], files=[]) for each in run_checks(write(path, rows))]
    assert again == [replace(each, examples=[], files=[]) for each in findings]  # but for the lines


def test_failures_are_told_with_their_share_and_the_commonest_reason_and_those_made_up_for_are_not(tmp_path: Path):
    errors = [f"POST http://127.0.0.1:{8000 + number}: 500" for number in range(20)]
    failures: Rows = [{"key": f"x{n}/0", "boundary": "model", "error": error} for n, error in enumerate(errors)]
    failures += [{"key": "y/0", "boundary": "verify", "error": "KeyError: 'x'"}, {"key": "t0/0", "error": "late"}]
    failures += [{"key": 5}, b"[1]\n", b"torn"]
    [one] = run_checks(write(tmp_path / "r.jsonl", clean(79, 1), failures))
    assert (one.name, one.severity, one.count, one.share, one.examples) == ("failures", "warning", 21, 0.21, [])
    assert one.message.endswith("most often (20): model: POST http://127.0.0.1:8000: 500")
    most = run_checks(write(tmp_path / "r.jsonl", clean(14, 1), failures))
    assert [(each.name, each.severity) for each in most] == [("failures", "error")]


def test_of_very_many_failures_a_sample_says_about_how_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("velodrome.checks.thresholds.MOST_FAILED", 100)
    checks = read_checks(write(tmp_path / "r.jsonl", clean(4, 1), [{"key": f"x{n}/0"} for n in range(800)]))
    [failures] = [each for each in checks.findings() if each.name == "failures"]
    assert failures.message.startswith("about ")
    assert failures.count == checks.failed == pytest.approx(800, rel=0.2)


@settings(max_examples=30, derandomize=True)
@given(
    count=st.integers(1, 300),
    repeats=st.sampled_from([1, 2, 4, 8]),
    seed=st.integers(0, 2**32),
    pass_rate=st.floats(0.35, 0.65),
    scale=st.sampled_from([-1.0, 0.5, 1.0, 5.0]),
)
def test_clean_runs_of_all_kinds_are_silent(count: int, repeats: int, seed: int, pass_rate: float, scale: float):
    rows = clean(count, repeats, seed, pass_rate)
    for row in rows:
        row["reward"] *= scale
    # a verifier that never says 1 has no other name for tasks it likes than "never passes"
    allowed = {"never-passes", "always-passes"} if scale in (0.5, -1.0) else set()
    assert set(names(findings_of(rows))) <= allowed


def test_few_alike_rewards_are_a_note_some_a_warning_and_many_an_error():
    def severities(reward: float, *counts: int) -> list[str | None]:
        runs = [clean(count, 1) for count in counts]
        for rows in runs:
            planted.rewarded(reward)(rows)
        return [worst(findings_of(rows)) for rows in runs]

    assert severities(1.0, 19, 20, 49, 50, 199, 200) == [None, "info", "info", "warning", "warning", "error"]
    assert severities(0.0, 1, 2, 12, 49, 50, 199, 200) == [None, "info", "info", "info", "warning", "warning", "error"]


def test_a_mix_of_kinds_of_tasks_is_no_reward_by_length_and_one_within_tasks_is():
    """JSON answers are longer, and right more often."""
    chance, rows = random.Random(5), clean(400, 4)
    for place, row in enumerate(rows):
        json = place // 4 % 2
        answered(row, "x" * (3000 * json + chance.randrange(600)))
        row["reward"] = float(chance.random() < 0.1 + 0.8 * json)
    assert names(findings_of(rows, only=["reward-length"])) == []
    for row in rows:
        row["reward"] = float(len(row["response"]["content"]) % 3000 > 300)
    assert "of the same task" in findings_of(rows, only=["reward-length"])[0].message


def scaled(scale: float, shift: float = 0.0) -> Callable[[Row], None]:
    def change(row: Row) -> None:
        row["reward"] = shift + scale * row["reward"]

    return change


def short_answer(row: Row) -> None:
    row["output"] = [{"role": "assistant", "content": row["expected_answer"]}]


def one_prompt(row: Row) -> None:
    row["responses_create_params"]["input"] = "Play the game."


def test_what_only_looks_like_a_problem_is_none():
    cases: list[tuple[Rows, Callable[[Row], None], list[Any]]] = [
        (clean(), scaled(20, 100), [("reward-outliers", "info")]),  # all beyond ten: that is a scale and no mistake
        (clean(400, 1, pass_rate=0.04), scaled(9), []),  # a second mode is no outlier
        (clean(), scaled(0.5), []),  # repeats that differ teach something, even if none passes
        (clean(), short_answer, []),  # short answers may be the same
        (clean(100, 1), one_prompt, []),  # tasks with one prompt and other fields are not the same
    ]
    for rows, change, expected in cases:
        for row in rows:
            change(row)
        assert [(one.name, one.severity) for one in findings_of(rows)] == expected


def test_findings_can_be_asked_for_at_any_time_and_the_worst_come_first():
    rows: Rows = clean()
    planted.uncounted(rows)
    truncated(rows)
    twice(rows)
    checks = Checks()
    for index, row in enumerate(rows):
        checks.add(RowFacts(row))
        if index == 100:
            checks.findings()
    assert names(checks.findings()) == ["duplicate-keys", "truncated", "no-token-counts"]
    assert checks.findings() == findings_of(rows)


def test_the_short_form_has_errors_and_warnings_and_names_the_notes():
    rows: Rows = clean()
    truncated(rows)
    planted.uncounted(rows)
    planted.deferred(rows)
    assert short(findings_of(rows), Path("r.jsonl")) == [
        "warning: truncated: 15 of 200 answers (7.5%) are cut off by the token limit",
        "and 2 notes (deferred, no-token-counts); velo check r.jsonl shows them",
    ]
    many = [Finding(f"n{n}", "error", "m", 1, 0.1, [], "a") for n in range(7)]
    assert short(many) == [*(f"error: n{n}: m" for n in range(5)), "and 2 more"]


def test_the_end_of_a_collection_asks_for_what_the_collector_does_not_see_to_itself():
    assert set(CHECKS) - WHILE_COLLECTING == {"duplicate-keys", "duplicate-tasks"}
    rows: Rows = clean()
    twice(rows)
    planted.same_tasks(rows)
    assert findings_of(rows, only=WHILE_COLLECTING) == []
    planted.never(rows)
    assert names(findings_of(rows, only=WHILE_COLLECTING)) == ["never-passes"]
    assert findings_of(rows, only=WHILE_COLLECTING, by_task=False) == []


SEED_002_ALIKE = """
import json
rewards = [json.loads(line)['reward'] for line in open('rollouts.jsonl')]
if min(rewards) == max(rewards):
    print("Warning: All rewards identical, check verification logic")
"""


def seed_says(snippet: str, folder: Path) -> str:
    with chdir(folder), redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves its file to be closed
        exec(snippet, {})
    return printed.getvalue()


@pytest.mark.parametrize("bare", [False, True], ids=["rollouts", "as the seed has them"])
def test_seed_002_and_the_checks_agree_on_which_lines_are_broken(tmp_path: Path, bare: bool):
    rows = clean(120, 1)
    for index, text in ((3, ""), (17, None), (30, "ERROR"), (31, "FAILED"), (60, "It FAILED"), (61, "ERROR")):
        answered(rows[index], text)
    for index, reward in ((44, 10.01), (45, 10), (46, -10.5), (61, 99), (70, -10)):
        rows[index]["reward"] = reward
    if bare:
        rows = [{"response": row["response"], "reward": row["reward"]} for row in rows]
        del rows[80]["response"]["content"], rows[81]["response"], rows[82]["reward"]
    path = write(tmp_path / "rollouts.jsonl", rows)
    said = re.findall(r"Line (\d+): (\w+) \w+", seed_says(BROKEN, tmp_path))
    ours = {one.name: set(one.examples) for one in run_checks(path)}
    kinds = {"Empty": "empty-answers", "Error": "error-answers", "Unusual": "reward-outliers"}
    seed = {name: {int(line) + 1 for line, each in said if each == kind} for kind, name in kinds.items()}
    assert seed == {name: ours[name] for name in kinds.values()}
    assert [len(lines) for lines in seed.values()] == [4 if bare else 2, 3, 3]


@pytest.mark.parametrize("reward", [0.4, None])
def test_seed_002_and_the_checks_agree_on_whether_rewards_are_identical(tmp_path: Path, reward: float | None):
    rows = clean(60, 1)
    if reward is not None:
        for row in rows:
            row["reward"] = reward
    path = write(tmp_path / "rollouts.jsonl", rows)
    alike = names(run_checks(path, only=["all-zero", "all-one", "constant-reward"]))
    assert ("All rewards identical" in seed_says(SEED_002_ALIKE, tmp_path)) == bool(alike) == (reward is not None)


def test_every_check_has_a_heading_and_every_heading_is_a_check():
    page = (DOCS / "checks.md").read_text()
    headings = re.findall(r"^### (\S+)\n\n\*Up to (\w+)\.\*", page, re.MULTILINE)
    assert headings == [(name, check.severity) for name, check in CHECKS.items()]
    assert len(headings) == len(re.findall("^### ", page, re.MULTILINE))


def played(rows: Rows) -> Rows:
    """The same rows as episodes of a policy."""
    return [{**row, "episode": {"agents": 1, "returns": [row["reward"]]}} for row in rows]


def returns_of(kind: str) -> Rows:
    """Rows with what is ordinary for episodes: returns of any size, all alike once it is solved, no tokens."""
    rows: Rows = clean(240)
    for number, row in enumerate(rows):
        row["usage"] = {}
        answered(row, f"Acted for {number + 1} steps. " + "Nothing was said. " * 5)
        row["output"] = row["output"][-1:]
        row["reward"] = {"solved": 500.0, "hopeless": 0.0, "one": 1.0}.get(kind, float(10 ** (number % 4)))
        row["meta"]["timing"] = {"total_s": 0.01 if number else 100.0}
    return rows


@pytest.mark.parametrize(
    ("kind", "of_answers"),
    [
        ("solved", {"constant-reward", "reward-outliers", "always-passes"}),
        ("hopeless", {"all-zero", "never-passes"}),
        ("one", {"all-one", "always-passes"}),
        ("many", {"reward-outliers"}),
    ],
)
def test_what_would_be_odd_of_answers_is_not_of_episodes(kind: str, of_answers: set[str]):
    assert set(names(findings_of(returns_of(kind)))) == {*of_answers, "no-token-counts", "slow-rollouts"}
    assert findings_of(played(returns_of(kind))) == []


def test_an_episode_whose_return_is_no_number_or_that_is_there_twice_is_found_and_answers_beside_them_too():
    rows = played(clean(40))
    rows[3]["reward"] = "much"
    assert set(names(findings_of([*rows, rows[0]]))) == {"bad-reward", "duplicate-keys"}
    answers: Rows = clean(240)
    planted.all_zero(answers)
    assert "all-zero" in names(findings_of([*answers, *played(clean(240))]))
