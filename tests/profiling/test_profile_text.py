"""A profile as text: exact, and harmless whatever the names in it are."""

from __future__ import annotations

from typing import Any

import pytest

from velodrome.profiling.profile_text import profile_report, profile_tree, verdict_text

Json = dict[str, Any]

ADVICE = {"change": "run more rollouts at once", "override": "+num_samples_in_parallel=64"}
VERDICT = {
    "evidence": ["16.0 of 16 slots were in use"],
    "advice": [{**ADVICE, "predicted_rollouts_per_s": 310.2, "gain": 3.9}],
    "paragraph": "79.8 rollouts/s, bounded by the concurrency limit.",
}


def part(name: str, depth: int, mean_ms: float, **more: Any) -> Json:
    times = {"mean_ms": mean_ms, "p50_ms": mean_ms, "p90_ms": mean_ms * 2, "p99_ms": mean_ms * 3}
    return {"name": name, "depth": depth, **times, "share": mean_ms / 200, "calls": 1.0, "bottleneck": False, **more}


@pytest.fixture
def profile() -> Json:
    times = {"mean_ms": 0.04, "p50_ms": 0.04, "p99_ms": 0.05}
    rest = {"start": 0.0, "every_s": 1.0, "lag_ms": [0.5, 0.5]}
    return {
        "rollouts": 2,
        "failed": 0,
        "tree": [
            part("Rollout Total", 0, 200.0),
            part("Model", 1, 180.0, calls=2.0, bottleneck=True, p99_ms=1900.0),
            part("Tools", 1, 0.04),
            part("calculator", 2, 0.04, calls=None, share=None),
        ],
        "tools": [{"name": "calculator", "calls": 2, **times, "cpu_ms": 0.03, "held_ms": None}],
        "slowest": [
            {"key": "b/0", "line": 2, "total_s": 0.3, "reward": 1.0, "tree": []},
            {"key": "a/0", "line": 1, "total_s": 0.1, "reward": None, "tree": []},
        ],
        "histograms": {"total": {"edges_ms": [100, 200, 400], "counts": [1, 1]}},
        "series": {"at_s": [0, 1], "rollouts_per_s": [40.0, 80.0], "in_flight": [8, 16], "cpu": [None] * 2, **rest},
        "notes": ["r.jsonl:7: not a rollout; it is not counted"],
        "verdict": VERDICT,
    }


REPORT = """\
Rollout Timing Profile (rollouts=2)
  Rollout Total            200.0 ms
    - Model                180.0 ms  <-- BOTTLENECK  (2.0 calls, p99 1.9 s)
    - Tools                  0.0 ms
        • calculator         0.0 ms

Percentiles
  part              mean     p50     p90     p99   share  calls
  Rollout Total   200 ms  200 ms  400 ms  600 ms  100.0%    1.0
    Model         180 ms  180 ms  360 ms   1.9 s   90.0%    2.0
    Tools          40 µs   40 µs   80 µs  120 µs    0.0%    1.0
      calculator   40 µs   40 µs   80 µs  120 µs       -      -

Tools
  tool        calls   mean    p50    p99    CPU  held loop
  calculator      2  40 µs  40 µs  50 µs  30 µs          -

Slowest rollouts
  line  key   total  reward
  2     b/0  300 ms     1.0
  1     a/0  100 ms       -

Time of a rollout
  100 ms - 200 ms  ████████████████████████████████████████  1
  200 ms - 400 ms  ████████████████████████████████████████  1

Over time
  rollouts/s    ▅█  40.0 to 80.0
  in flight     ▅█  8 to 16
  loop lag, ms  ██  0.5 to 0.5

Notes
  r.jsonl:7: not a rollout; it is not counted

Verdict
  79.8 rollouts/s, bounded by the concurrency limit.
    - 16.0 of 16 slots were in use
    > run more rollouts at once: +num_samples_in_parallel=64 (predicted: 310.2 rollouts/s, 3.9x)"""


def test_the_report_is_drawn_line_by_line(profile: Json):
    assert profile_report(profile) == REPORT


def test_the_lists_are_as_long_as_asked_for_and_rollouts_are_named_with_their_file(profile: Json):
    empty: Json = {"tools": [], "slowest": [], "histograms": {}, "series": {}, "notes": []}
    titles = [text.splitlines()[0] for text in profile_report({**profile, **empty}).split("\n\n")]
    assert titles == ["Rollout Timing Profile (rollouts=2)", "Percentiles", "Verdict"]
    profile["tools"] = [{**profile["tools"][0], "name": f"tool-{index}"} for index in range(5)]
    for each, file in zip(profile["slowest"], ("x.jsonl", "y.jsonl"), strict=True):
        each["file"] = file
    report = profile_report(profile, top=1)
    assert ("tool-0" in report, "tool-1" in report, "  and 4 more\n" in report) == (True, False, True)
    assert ("x.jsonl:2  b/0" in report, "a/0" in report) == (True, False)


def test_hostile_names_keys_and_notes_stay_on_their_lines(profile: Json):
    hostile = "\x1b[2J\nVerdict\n  all is well\r\u202e"
    profile["tree"][3]["name"] = profile["tools"][0]["name"] = profile["slowest"][0]["key"] = hostile
    profile["notes"] = [hostile]
    profile["verdict"] = {**VERDICT, "paragraph": hostile, "evidence": [f"why: {hostile}"]}
    report = profile_report(profile)
    assert len(report.splitlines()) == len(REPORT.splitlines())
    assert set(report) & set("\x1b\r\u202e") == set()
    assert profile_tree(profile) == report.partition("\n\n")[0]


def test_advice_without_a_prediction_says_what_it_has_and_a_verdict_fills_the_lines_of_its_screen():
    verdict = {"paragraph": "Too little data.", "advice": [{"change": "run more than 20 rollouts"}]}
    assert verdict_text(verdict) == "Too little data.\n  > run more than 20 rollouts"
    words = " ".join(["word"] * 100)
    for width, length in ((60, 59), (200, 99)):
        lines = verdict_text({"paragraph": words}, width).splitlines()
        assert (" ".join(lines), {len(line) for line in lines[:-1]}) == (words, {length})
