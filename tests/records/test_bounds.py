"""Numbers from outside: which are within bounds, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest

from velodrome.records.bounds import MAX_TOKENS, is_count, tokens_flaw, usage_flaw


@pytest.mark.parametrize("count", [MAX_TOKENS + 1, -1, 1.5, True, "7"])
def test_a_count_that_is_not_a_whole_number_within_bounds_is_named(count: Any):
    assert not is_count(count)
    assert str(usage_flaw({"total_tokens": count})).startswith("usage.total_tokens is ")
    nested = {"output_tokens_details": {"reasoning_tokens": count}}
    assert str(usage_flaw(nested)).startswith("usage.output_tokens_details.reasoning_tokens is ")


def test_another_measure_is_bounded_and_a_usage_is_an_object_of_bounded_depth():
    fine = {"total_tokens": 0, "input_tokens": MAX_TOKENS, "output_tokens": None, "cost": 0.25, "tier": "default"}
    assert usage_flaw(None) is usage_flaw({**fine, "input_tokens_details": {"cached_tokens": 3}}) is None
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"more": deep}
    flaws = [str(usage_flaw(each)) for each in ({"cost": 1e300}, [1], deep)]
    assert ["usage.cost" in flaws[0], "not an object" in flaws[1], "too deeply" in flaws[2]] == [True] * 3


def test_token_ids_and_log_probabilities_are_lists_of_numbers():
    assert tokens_flaw("prompt_token_ids", [0, 5, 128_000]) is None
    assert tokens_flaw("generation_log_probs", [-0.5, 0, -9999.0]) is None
    for bad in ("12", [-1], [1.0], [True], [2**64 - 1]):
        assert "prompt_token_ids" in str(tokens_flaw("prompt_token_ids", bad))
    for bad in ("12", [None], [True], [float("nan"), 0.0], [float("-inf")]):
        assert "generation_log_probs" in str(tokens_flaw("generation_log_probs", bad))
