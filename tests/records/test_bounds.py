"""Numbers from outside: which are within bounds, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest

from velodrome.records.bounds import MAX_NUMBER, MAX_TOKENS, is_bounded, is_count, tokens_flaw, usage_flaw


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"total_tokens": 0, "input_tokens": MAX_TOKENS, "output_tokens": None},
        {"input_tokens_details": {"cached_tokens": 3}, "cost": 0.25, "queue_time": -1.5, "tier": "default"},
    ],
)
def test_a_usage_within_bounds_has_no_flaw(usage: Any):
    assert usage_flaw(usage) is None


@pytest.mark.parametrize("count", [2**64 - 1, 2**63 - 1, MAX_TOKENS + 1, -1, 1.5, 1.8e19, float("nan"), True, "7", [7]])
def test_a_count_that_is_not_a_whole_number_within_bounds_is_named(count: Any):
    assert not is_count(count)
    assert str(usage_flaw({"total_tokens": count})).startswith("usage.total_tokens is ")
    nested = {"output_tokens_details": {"reasoning_tokens": count}}
    assert str(usage_flaw(nested)).startswith("usage.output_tokens_details.reasoning_tokens is ")


def test_another_measure_is_bounded_and_a_usage_is_an_object_of_bounded_depth():
    assert "usage.cost" in str(usage_flaw({"cost": 1e300}))
    assert "usage.cost" in str(usage_flaw({"cost": float("inf")}))
    assert "not an object" in str(usage_flaw([1]))
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"more": deep}
    assert "too deeply" in str(usage_flaw(deep))


def test_token_ids_and_log_probabilities_are_lists_of_numbers():
    assert tokens_flaw("prompt_token_ids", [0, 5, 128_000]) is None
    assert tokens_flaw("generation_log_probs", [-0.5, 0, -9999.0]) is None
    assert tokens_flaw("prompt_token_ids", []) is tokens_flaw("generation_log_probs", []) is None
    for bad in ("12", {"a": 1}, [-1], [1.0], [True], [None], [2**64 - 1], [[1]]):
        assert "prompt_token_ids" in str(tokens_flaw("prompt_token_ids", bad))
    for bad in ("12", [None], ["-1"], [True], [float("nan"), 0.0], [float("-inf")]):
        assert "generation_log_probs" in str(tokens_flaw("generation_log_probs", bad))


def test_a_number_that_is_averaged_leaves_room_for_the_sum_of_squares_of_many():
    assert all(map(is_bounded, (MAX_NUMBER, -3, 2**70)))
    assert not any(map(is_bounded, (1e308, float("inf"), float("-inf"), float("nan"))))
    assert sum(MAX_NUMBER**2 for _ in range(10_000)) < float("inf")
