"""What k of a task's n rollouts would have done: exact averages over every way to draw k of them without putting back.

So each is an unbiased estimate of what k fresh rollouts do, for any k up to n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import comb

MOST_VOTES = 32  # of one task; the ways to split more than that are too many to go through

Vote = tuple[int, bool]  # which answer (0: none was given), and whether its rollout passed
Ballot = tuple[tuple[tuple[int, int], ...], int]  # for each answer its tries and its passes; the tries without one


def pass_hat_k(n: int, passed: int, k: int) -> float:
    """The chance that all of k tries, drawn without putting back from n, passed."""
    return comb(passed, k) / comb(n, k)


def ballot(votes: Iterable[Vote]) -> Ballot:
    """Count the votes: the tries and the passes of each answer, and the tries that gave no answer."""
    tries: Counter[int] = Counter()
    right: Counter[int] = Counter()
    for answer, passed in votes:
        tries[answer] += 1
        right[answer] += passed
    silent = tries.pop(0, 0)
    return tuple(sorted((count, right[answer]) for answer, count in tries.items())), silent


@lru_cache(maxsize=65536)
def majority_at_k(votes: Ballot, k: int) -> float:
    """The chance that the answer that most of k tries give is right.

    Answers that tie share the win. A try without an answer has no vote; if none of the k has one, nothing is right. An
    answer is as right as the share of its rollouts that passed.
    """
    answers, silent = votes
    chances = _winning(tuple(count for count, _ in answers), silent, k)
    return sum(chances[count] * right / count for count, right in answers)


@lru_cache(maxsize=65536)
def _winning(counts: tuple[int, ...], silent: int, k: int) -> dict[int, float]:
    """The chance that an answer wins among k tries, by how often it was given."""
    every = comb(sum(counts) + silent, k)
    chances = {}
    for own in set(counts):
        others = list(counts)
        others.remove(own)
        ways = 0.0
        for got in range(1, min(own, k) + 1):
            splits = _splits(others, silent, k - got, got)
            ways += comb(own, got) * sum(count / (tied + 1) for tied, count in splits.items())
        chances[own] = ways / every
    return chances


def _splits(others: list[int], silent: int, left: int, most: int) -> dict[int, int]:
    """In how many ways the tries left fall to others, none getting more than `most`, by how many of them get that."""
    ways: dict[tuple[int, int], int] = {(0, 0): 1}  # tries given away, answers that tie
    for count in others:
        after: dict[tuple[int, int], int] = {}
        for (used, tied), before in ways.items():
            for got in range(min(count, most, left - used) + 1):
                place = (used + got, tied + (got == most))
                after[place] = after.get(place, 0) + before * comb(count, got)
        ways = after
    by_ties: dict[int, int] = {}
    for (used, tied), before in ways.items():
        if left - used <= silent:
            by_ties[tied] = by_ties.get(tied, 0) + before * comb(silent, left - used)
    return by_ties
