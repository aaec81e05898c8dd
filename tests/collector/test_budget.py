"""What a run may use up."""

from __future__ import annotations

import pytest

from velodrome.collector.pace import Budget


@pytest.mark.parametrize(
    ("budget", "tokens", "kept", "failed", "reason"),
    [
        (Budget(), 10**9, 10**6, 10**6, None),
        (Budget(max_total_tokens=100), 99, 1, 0, None),
        (Budget(max_total_tokens=100), 100, 1, 0, "max_total_tokens=100 reached (100 tokens)"),
        (Budget(max_failures=0), 0, 5, 0, None),
        (Budget(max_failures=0), 0, 0, 1, "max_failures=0 reached (1 failed)"),
        (Budget(max_failures=2), 0, 0, 2, None),
        (Budget(max_failures=2), 0, 0, 3, "max_failures=2 reached (3 failed)"),
        (Budget(max_failures=1), 0, 0, 2, "max_failures=1 reached (2 failed)"),
        (Budget(max_failures=0.1), 0, 0, 19, None),
        (Budget(max_failures=0.1), 0, 18, 2, None),
        (Budget(max_failures=0.1), 0, 17, 3, "max_failures=0.1 reached (3 of 20 failed)"),
    ],
)
def test_a_limit_is_reached_when_it_is_used_up_and_not_before(
    budget: Budget, tokens: int, kept: int, failed: int, reason: str | None
):
    assert budget.reached(tokens=tokens, kept=kept, failed=failed) == reason
