"""pass@k, pass^k and majority@k equal the average over every way to draw k of n."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.stats.draws import Vote, ballot, majority_at_k, pass_hat_k
from velodrome.stats.metrics import pass_at_k


def test_pass_at_k_and_pass_hat_k_equal_counting_every_draw():
    for n in range(1, 9):
        for passed in range(n + 1):
            tries = [index < passed for index in range(n)]
            for k in range(1, n + 1):
                draws = list(combinations(tries, k))
                assert pass_at_k(n, passed, k) == pytest.approx(sum(map(any, draws)) / len(draws))
                assert pass_hat_k(n, passed, k) == pytest.approx(sum(map(all, draws)) / len(draws))


def majority_by_hand(votes: list[Vote], k: int) -> float:
    given_by: Counter[int] = Counter(answer for answer, _ in votes)
    right = {
        answer: sum(passed for each, passed in votes if each == answer) / count for answer, count in given_by.items()
    }
    draws = list(combinations(votes, k))
    total = 0.0
    for draw in draws:
        counts = Counter(answer for answer, _ in draw if answer)
        winners = [answer for answer, count in counts.items() if count == max(counts.values())]
        total += sum(right[answer] for answer in winners) / len(winners) if winners else 0.0
    return total / len(draws)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8))
def test_majority_at_k_equals_voting_in_every_draw(votes: list[Vote]):
    counted = ballot(votes)
    for k in range(1, len(votes) + 1):
        assert majority_at_k(counted, k) == pytest.approx(majority_by_hand(votes, k)), k
