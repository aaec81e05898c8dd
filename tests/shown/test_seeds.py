"""Every `ng_collect_rollouts` command of the seeds runs as written, and the seeds' Python runs on what it leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.shown.conftest import numbered, task
from tests.support.screens import Screen
from tests.support.seed_snippets import BROKEN

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "print_aggregate_results.py"

SINGLE_TOOL = """
config_paths:
  - resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml
  - model.yaml
embedded: true
"""
WEATHER_MODEL = """
policy_model:
  responses_api_models:
    scripted_model:
      answers:
        - tool_calls: [{name: get_weather, arguments: {city: Paris}}]
        - "In Paris: {tool_result}"
"""


def test_seed_001_collects_with_repeats_and_a_cap_on_concurrency(workplace: Any) -> None:
    workplace.write("env.yaml", SINGLE_TOOL)
    workplace.write("model.yaml", WEATHER_MODEL)
    rows = [
        {
            "id": number,
            "responses_create_params": {"input": [{"role": "user", "content": "Weather in Paris?"}]},
            "city": "Paris",
        }
        for number in range(120)
    ]
    workplace.write_rows("weather_query.jsonl", rows)

    done = workplace.run("""ng_collect_rollouts \\
    +agent_name=example_single_tool_call_simple_agent \\
    +input_jsonl_fpath=weather_query.jsonl \\
    +output_jsonl_fpath=weather_rollouts.jsonl \\
    +limit=100 \\
    +num_repeats=4 \\
    +num_samples_in_parallel=10""")

    assert done.returncode == 0, done.stderr
    assert sorted(workplace.keys("weather_rollouts.jsonl")) == sorted(
        f"{task}/{n}" for task in range(100) for n in range(4)
    )
    assert json.loads(done.stdout)["rollouts/kept"] == 400


SEED_002_PROGRESS = """ng_collect_rollouts \\
    +input_jsonl_fpath=tasks.jsonl \\
    +output_jsonl_fpath=rollouts.jsonl

# Automatically displays:
# Collecting rollouts: 45%|████▌     | 450/1000 [02:15<02:45, 3.33it/s]
"""


def test_seed_002_shows_the_progress_bar_and_prints_the_metrics(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 100, wrong=27)

    command = ["bash", "-c", f"({SEED_002_PROGRESS}) > stdout"]
    with Screen(command, cwd=workplace.folder, columns=120, env=workplace.environ) as screen:
        code = screen.end()

    assert code == 0, screen.text
    assert re.search(
        r"Collecting rollouts: 100%\|█+\| 100/100 \[\d\d:\d\d<\d\d:\d\d, +[\d.]+it/s, reward 0.730\]", screen.text
    )
    metrics = json.loads((workplace.folder / "stdout").read_text())
    assert (metrics["reward"], metrics["accuracy"], metrics["avg_tool_calls"]) == (0.73, 0.73, 1.0)


def test_seed_002_manual_resume_ends_with_every_task_once(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("input.jsonl", 10_000)
    first = workplace.run(
        "ng_collect_rollouts +input_jsonl_fpath=input.jsonl +output_jsonl_fpath=rollouts.jsonl +limit=5432"
    )
    assert first.returncode == 0, first.stderr

    again = workplace.run("""# Check how many completed
wc -l rollouts.jsonl  # Output: 5432

# Process remaining tasks
tail -n +5433 input.jsonl > remaining.jsonl
ng_collect_rollouts \\
    +input_jsonl_fpath=remaining.jsonl \\
    +output_jsonl_fpath=rollouts.jsonl  # Appends automatically
    +limit=4568
""")

    assert again.stdout.startswith("5432 rollouts.jsonl\n")
    assert "requested 4568 = kept 4568 + failed 0" in again.stderr
    assert sorted(workplace.keys()) == numbered(10_000)
    assert '"rollouts/kept": 10000' in again.stdout  # metrics cover old and new rows


# Each command, its output, how many rollouts it makes of 30 tasks, and what it asks of the model.
OVERRIDE = """ng_collect_rollouts \\
    +agent_name=my_agent \\
    +input_jsonl_fpath=tasks.jsonl \\
    +output_jsonl_fpath=rollouts.jsonl \\
    +responses_create_params.max_output_tokens=512"""
BENCHMARK = """time ng_collect_rollouts \\
    +input_jsonl_fpath=tasks.jsonl \\
    +output_jsonl_fpath=test_rollouts.jsonl \\
    +limit=100"""
HIGH_THROUGHPUT = """ng_collect_rollouts \\
    +agent_name=my_agent \\
    +input_jsonl_fpath=full_dataset.jsonl \\
    +num_samples_in_parallel=20"""
EXPLORATION = """ng_collect_rollouts \\
    +agent_name=my_agent \\
    +input_jsonl_fpath=tasks.jsonl \\
    +limit=100 \\
    +num_repeats=5 \\
    +responses_create_params.temperature=0.8"""
EVALUATION = """ng_collect_rollouts \\
    +agent_name=my_agent \\
    +input_jsonl_fpath=benchmark.jsonl \\
    +responses_create_params.temperature=0.1 \\
    +num_samples_in_parallel=5"""
OWN = {"temperature": 0.2, "top_p": 0.9}  # of each task
SAME_LINES: list[tuple[str, str, int, dict[str, Any]]] = [
    (OVERRIDE, "rollouts.jsonl", 30, {"max_output_tokens": 512}),
    (BENCHMARK, "test_rollouts.jsonl", 30, {}),
    (HIGH_THROUGHPUT, "full_dataset.rollouts.jsonl", 30, {}),
    (EXPLORATION, "tasks.rollouts.jsonl", 150, {"temperature": 0.8}),
    (EVALUATION, "benchmark.rollouts.jsonl", 30, {"temperature": 0.1}),
]


@pytest.mark.parametrize(("command", "output", "count", "overrides"), SAME_LINES)
def test_a_seed_command_runs_as_written_and_its_overrides_beat_the_tasks_own_parameters(
    workplace: Any, command: str, output: str, count: int, overrides: dict[str, Any]
) -> None:
    workplace.scripted()
    for name in ("tasks.jsonl", "full_dataset.jsonl", "benchmark.jsonl"):
        rows = [task(number) for number in range(30)]
        for row in rows:
            row["responses_create_params"] |= OWN
        workplace.write_rows(name, rows)

    done = workplace.run(command)

    assert done.returncode == 0, done.stderr
    rows = workplace.rows(output)
    assert len(rows) == count
    request = [{k: v for k, v in row["responses_create_params"].items() if k not in ("input", "tools")} for row in rows]
    assert request == [OWN | overrides] * count


TOKENS = """
import json
import time

# Measure collection time
start = time.time()
# Run ng_collect_rollouts here
elapsed = time.time() - start

# Calculate token throughput
total_tokens = sum(
    json.loads(line).get('usage', {}).get('total_tokens', 0)
    for line in open('rollouts.jsonl')
)
tokens_per_sec = total_tokens / elapsed

print(f"Throughput: {tokens_per_sec:.1f} tokens/sec")
print(f"Total tokens: {total_tokens:,}")
"""
DISTRIBUTION = """
import json

# Load rewards
rewards = [
    json.loads(line)['reward']
    for line in open('rollouts.jsonl')
]

# Quick distribution summary
print(f"Min: {min(rewards):.2f}")
print(f"Max: {max(rewards):.2f}")
print(f"Mean: {sum(rewards)/len(rewards):.2f}")
print(f"Median: {sorted(rewards)[len(rewards)//2]:.2f}")

# Spot obvious issues
if min(rewards) == max(rewards):
    print("⚠️ Warning: All rewards identical, check verification logic")
"""


def run_snippet(workplace: Any, code: str) -> str:
    workplace.write("snippet.py", code)
    done = workplace.run("python snippet.py")
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_seed_002_snippets_find_what_is_broken(workplace: Any) -> None:
    workplace.scripted()
    workplace.model("file: answers.jsonl")
    workplace.write(
        "answers.jsonl",
        '{"match": "(0)", "answers": [""]}\n{"match": "(1)", "answers": ["ERROR"]}\n{"answers": ["no idea"]}\n',
    )
    workplace.tasks("tasks.jsonl", 4)
    done = workplace.run(SEED_002_PROGRESS + "    +num_samples_in_parallel=1")
    assert done.returncode in (0, 127), done.stderr  # the last line is a command of its own, as in the seed's resume

    order = [row["meta"]["task_index"] for row in workplace.rows()]
    text = run_snippet(workplace, BROKEN)
    assert "Found 2 critical issues" in text
    assert f"Line {order.index(0)}: Empty response" in text
    assert f"Line {order.index(1)}: Error response" in text
    assert "All rewards identical" in run_snippet(workplace, DISTRIBUTION)


def test_the_aggregation_script_prints_what_the_collection_printed(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 20, wrong=5)
    done = workplace.run(
        "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl +num_repeats=2"
    )
    script = "scripts/print_aggregate_results.py"
    workplace.write(script, SCRIPT.read_text())

    again = workplace.run(f"python {script} +jsonl_fpath=rollouts.jsonl")

    metrics = json.loads(done.stdout)
    assert metrics == json.loads(again.stdout)
    assert metrics == json.loads((workplace.folder / "rollouts.metrics.json").read_text())
    assert metrics["pass@2"] == 0.75
    assert run_snippet(workplace, BROKEN) == ""
    for words in ("", "rollouts.jsonl", "+jsonl_fpath=", "+jsonl_fpath=a.jsonl +limit=3"):
        done = workplace.run(f"python {script} {words}")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
