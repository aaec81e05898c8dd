"""Whatever the seeds' own Python computes from a rollouts file, `velo metrics` and the aggregation script say too."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.shown.test_seeds import DISTRIBUTION, TOKENS, run_snippet
from tests.support.planted import clean
from velodrome.records.rollout import encode


def rollouts(rewards: list[float]) -> bytes:
    """A file as a collection leaves it, in no order, with the score of seed 004's `verify` in every row."""
    chance = random.Random(0)
    rows = clean(len(rewards))
    for row, reward in zip(rows, rewards, strict=True):
        tokens = chance.randrange(10, 5000)
        row["usage"] = {"input_tokens": tokens, "output_tokens": 7, "total_tokens": tokens + 7}
        row |= {"reward": reward, "accuracy": 1.0, "custom_metric": 42}
        row["meta"]["scored"] += ["accuracy", "custom_metric"]
    chance.shuffle(rows)
    return b"".join(map(encode, rows))


SPREADS = [
    [float(number % 3 == 0) for number in range(60)],
    [0.0, 0.25, 0.5, 1.0],
    [-2.0, 0.1, 0.7, 3.5, 11.0],
    [0.5] * 9,
    [0.73],
    [number * 0.0007 - 1.0 for number in range(3001)],
]


@pytest.fixture
def printed(typed: Any) -> Callable[[str], Any]:
    """The JSON that `velo metrics` prints."""

    def run(words: str) -> Any:
        done = typed(f"velo metrics {words}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_reward_distribution_of_seed_002_is_that_of_velo_metrics(workplace: Any, printed: Any) -> None:
    for rewards in SPREADS:
        (workplace.folder / "rollouts.jsonl").write_bytes(rollouts(rewards))
        text = run_snippet(workplace, DISTRIBUTION)
        reward = printed("rollouts.jsonl --json")["run"]["fields"]["reward"]
        report = {"Min": "min", "Max": "max", "Mean": "mean", "Median": "median"}
        lines = [f"{title}: {reward[name]:.2f}" for title, name in report.items()]
        alike = "⚠️ Warning: All rewards identical, check verification logic"
        assert text.splitlines() == lines + [alike] * (reward["min"] == reward["max"])
        assert (reward["n"], reward["median_error"]) == (len(rewards), 0.0)


def test_the_tokens_of_seed_002_are_those_of_velo_metrics(workplace: Any, printed: Any) -> None:
    (workplace.folder / "rollouts.jsonl").write_bytes(rollouts(SPREADS[0]))
    text = run_snippet(workplace, TOKENS)
    flat, whole = printed("rollouts.jsonl"), printed("rollouts.jsonl --json")
    assert f"Total tokens: {flat['tokens/total']:,}\n" in text
    assert flat["throughput/tokens_per_s"] == pytest.approx(flat["tokens/total"] / flat["throughput/active_s"])
    tokens = whole["run"]["fields"]["tokens"]
    assert round(tokens["mean"] * tokens["n"]) == flat["tokens/total"]


def test_any_number_that_verify_returns_is_averaged_as_seed_004_says(workplace: Any, printed: Any) -> None:
    rewards = SPREADS[0]
    (workplace.folder / "rollouts.jsonl").write_bytes(rollouts(rewards))
    flat, fields = printed("rollouts.jsonl"), printed("rollouts.jsonl --json")["run"]["fields"]
    report = {name: flat[name] for name in ("reward", "accuracy", "custom_metric")}
    assert report == {"reward": pytest.approx(sum(rewards) / len(rewards)), "accuracy": 1.0, "custom_metric": 42.0}
    assert report == {name: pytest.approx(fields[name]["mean"]) for name in report}
    assert len(rewards) == flat["rollouts/kept"] == fields["reward"]["n"]
