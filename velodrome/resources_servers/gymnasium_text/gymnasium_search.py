"""The best actions in an environment whose table of transitions is known and leaves nothing to chance."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

_MOST_STATES = 100_000


def best_actions(table: Any, start: int) -> tuple[list[int], float] | None:
    """The actions with the highest return that end the episode, and that return; None if there are none to be found.

    `table[state][action]` is a list of (probability, next state, reward, terminated), as in Gymnasium's toy texts.
    Before the end no reward may be above 0, so that no circle pays.
    """
    costs: dict[int, tuple[float, int]] = {start: (0.0, 0)}
    came: dict[int, tuple[int, int]] = {}
    best: tuple[float, int, int] | None = None  # the return, and the last state and action
    waiting = [(0.0, 0, start)]
    while waiting and len(costs) < _MOST_STATES:
        cost, steps, state = heappop(waiting)
        if costs[state] < (cost, steps):
            continue
        for action, outcomes in table[state].items():
            if len(outcomes) != 1:
                return None
            _, then, reward, over = outcomes[0]
            if over:
                if best is None or reward - cost > best[0]:
                    best = float(reward) - cost, state, action
            elif reward > 0:
                return None
            elif (cost - reward, steps + 1) < costs.get(then, (float("inf"), 0)):
                costs[then] = cost - float(reward), steps + 1
                came[then] = state, action
                heappush(waiting, (*costs[then], then))
    return None if best is None else (_way(came, start, best[1], best[2]), best[0])


def _way(came: dict[int, tuple[int, int]], start: int, state: int, last: int) -> list[int]:
    actions = [last]
    while state != start:
        state, action = came[state]
        actions.append(action)
    return actions[::-1]
