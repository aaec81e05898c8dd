"""Whatever the seeds' own Python computes from a rollouts file, `velo metrics` and the aggregation script say too."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from test_seeds import DISTRIBUTION, SCRIPT, TOKENS, run_snippet

from velodrome.records.rollout import encode


def rollouts(rewards: list[float], seed: int = 0) -> bytes:
    """A file as a collection leaves it, in no order, with the score of seed 004's `verify` in every row."""
    chance = random.Random(seed)
    lines = []
    for number, reward in enumerate(rewards):
        tokens = chance.randrange(10, 5000)
        row = {
            "responses_create_params": {"input": f"task {number // 4}"},
            "output": [{"role": "assistant", "content": "36"}],
            "response": {"content": "36", "status": "completed"},
            "usage": {"input_tokens": tokens, "output_tokens": 7, "total_tokens": tokens + 7},
            "reward": reward,
            "accuracy": 1.0,
            "custom_metric": 42,
            "meta": {
                "key": f"t{number // 4}/{number % 4}",
                "finished_at": 1000.0 + number,
                "timing": {"total_s": chance.uniform(0.5, 3.0)},
            },
        }
        lines.append(encode(row))
    chance.shuffle(lines)
    return b"".join(lines)


def printed(workplace: Any, command: str) -> Any:
    done = workplace.run(command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SPREADS = {
    "ones and zeros": [float(number % 3 == 0) for number in range(60)],
    "an even count": [0.0, 0.25, 0.5, 1.0],
    "an odd count, some below zero": [-2.0, 0.1, 0.7, 3.5, 11.0],
    "all alike": [0.5] * 9,
    "one": [0.73],
    "thousands that all differ": [number * 0.0007 - 1.0 for number in range(3001)],
}


@pytest.mark.parametrize("rewards", SPREADS.values(), ids=SPREADS.keys())
def test_the_reward_distribution_of_seed_002_is_that_of_velo_metrics(workplace: Any, rewards: list[float]) -> None:
    (workplace.folder / "rollouts.jsonl").write_bytes(rollouts(rewards))
    text = run_snippet(workplace, DISTRIBUTION)
    reward = printed(workplace, "velo metrics rollouts.jsonl --json")["run"]["fields"]["reward"]
    report = {"Min": "min", "Max": "max", "Mean": "mean", "Median": "median"}
    lines = [f"{title}: {reward[name]:.2f}" for title, name in report.items()]
    alike = "⚠️ Warning: All rewards identical, check verification logic"
    assert text.splitlines() == lines + [alike] * (reward["min"] == reward["max"])
    assert (reward["n"], reward["median_error"]) == (len(rewards), 0.0)


def test_the_tokens_of_seed_002_are_those_of_velo_metrics(workplace: Any) -> None:
    (workplace.folder / "rollouts.jsonl").write_bytes(rollouts(SPREADS["ones and zeros"]))
    text = run_snippet(workplace, TOKENS)
    flat = printed(workplace, "velo metrics rollouts.jsonl")
    whole = printed(workplace, "velo metrics rollouts.jsonl --json")
    assert f"Total tokens: {flat['tokens/total']:,}\n" in text
    assert flat["throughput/tokens_per_s"] == pytest.approx(flat["tokens/total"] / flat["throughput/active_s"])
    tokens = whole["run"]["fields"]["tokens"]
    assert round(tokens["mean"] * tokens["n"]) == flat["tokens/total"]


def test_any_number_that_verify_returns_is_averaged_as_seed_004_says(workplace: Any) -> None:
    rewards = SPREADS["ones and zeros"]
    (workplace.folder / "rollouts.jsonl").write_bytes(rollouts(rewards))
    flat = printed(workplace, "velo metrics rollouts.jsonl")
    fields = printed(workplace, "velo metrics rollouts.jsonl --json")["run"]["fields"]
    report = {name: flat[name] for name in ("reward", "accuracy", "custom_metric")}
    assert report == {"reward": pytest.approx(sum(rewards) / len(rewards)), "accuracy": 1.0, "custom_metric": 42.0}
    assert report == {name: pytest.approx(fields[name]["mean"]) for name in report}
    count = workplace.run("wc -l < rollouts.jsonl").stdout
    assert int(count) == flat["rollouts/kept"] == fields["reward"]["n"]


def test_the_aggregation_script_prints_what_velo_metrics_prints_with_every_flag(workplace: Any) -> None:
    (workplace.folder / "rollouts.jsonl").write_bytes(rollouts(SPREADS["ones and zeros"]))
    (workplace.folder / "more.jsonl").write_bytes(rollouts([0.5] * 80))
    workplace.write("scripts/print_aggregate_results.py", SCRIPT.read_text())
    script = "python scripts/print_aggregate_results.py +jsonl_fpath=rollouts.jsonl"
    assert printed(workplace, script) == printed(workplace, "velo metrics rollouts.jsonl")
    for flags in ("--json --by task", "--json --k 1,3 --ci 0.9"):
        assert printed(workplace, f"{script} {flags}") == printed(workplace, f"velo metrics rollouts.jsonl {flags}")
    several = printed(workplace, f"{script} +jsonl_fpath=more.jsonl")
    assert several == printed(workplace, "velo metrics rollouts.jsonl more.jsonl")
    assert several["rollouts/kept"] == 80


@pytest.mark.parametrize("words", ["", "rollouts.jsonl", "+jsonl_fpath=", "+jsonl_fpath=a.jsonl +limit=3"])
def test_the_aggregation_script_says_how_it_is_called(workplace: Any, words: str) -> None:
    workplace.write("scripts/print_aggregate_results.py", SCRIPT.read_text())
    done = workplace.run(f"python scripts/print_aggregate_results.py {words}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python scripts/print_aggregate_results.py +jsonl_fpath=rollouts.jsonl")
    assert len(done.stderr.splitlines()) == 1
