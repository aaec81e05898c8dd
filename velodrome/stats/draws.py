"""Results of k of a task's n rollouts: exact averages over every way to draw k of them without replacement.

Each is an unbiased estimate for k new rollouts, for any k up to n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import comb

MOST_VOTES = 32  # of one task; beyond that there are too many splits to enumerate

Vote = tuple[int, bool]  # the answer (0: no answer), and whether its rollout passed
Ballot = tuple[tuple[tuple[int, int], ...], int]  # tries and passes of each answer; tries without an answer


def pass_hat_k(n: int, passed: int, k: int) -> float:
    """The chance that all of k tries, drawn from n without replacement, passed."""
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
    """The chance that the most frequent answer of k tries is right.

    Tied answers share the win. A try without an answer has no vote; if no try has an answer, the chance is 0. How right
    an answer is: the share of its rollouts that passed.
    """
    answers, silent = votes
    chances = _winning(tuple(count for count, _ in answers), silent, k)
    return sum(chances[count] * right / count for count, right in answers)


@lru_cache(maxsize=65536)
def _winning(counts: tuple[int, ...], silent: int, k: int) -> dict[int, float]:
    """The chance that an answer wins among k tries, by its number of votes."""
    draws = comb(sum(counts) + silent, k)
    chances = {}
    for votes in set(counts):
        others = list(counts)
        others.remove(votes)
        ways = 0.0
        for drawn in range(1, min(votes, k) + 1):
            splits = _splits(others, silent, k - drawn, drawn)
            ways += comb(votes, drawn) * sum(count / (tied + 1) for tied, count in splits.items())
        chances[votes] = ways / draws
    return chances


def _splits(others: list[int], silent: int, draws: int, largest: int) -> dict[int, int]:
    """The ways to draw `draws` tries of the others, at most `largest` of each, by how many others reach `largest`."""
    ways: dict[tuple[int, int], int] = {(0, 0): 1}  # (tries drawn, answers that tie) -> ways
    for count in others:
        new_ways: dict[tuple[int, int], int] = {}
        for (used, tied), count_of_ways in ways.items():
            for drawn in range(min(count, largest, draws - used) + 1):
                place = (used + drawn, tied + (drawn == largest))
                new_ways[place] = new_ways.get(place, 0) + count_of_ways * comb(count, drawn)
        ways = new_ways
    by_ties: dict[int, int] = {}
    for (used, tied), count_of_ways in ways.items():
        if draws - used <= silent:
            by_ties[tied] = by_ties.get(tied, 0) + count_of_ways * comb(silent, draws - used)
    return by_ties
