"""A collection over time, in bounded memory.

Gaps between resumed runs are left out. If there are too many points, they are merged in pairs.
"""

from __future__ import annotations

from typing import Any

from velodrome.stats.stretches import Stretches

Json = dict[str, Any]

MOST_POINTS = 600
_FIRST_WIDTH_S = 0.125
_FEW_POINTS = 12
_NOTHING = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
_ROLLOUTS_A_POINT = 8  # fewer are mostly chance


class Series:
    """Finished rollouts, and the load at that time, by the time they finished."""

    def __init__(self) -> None:
        self._width_s = _FIRST_WIDTH_S
        self._origin: float | None = None
        self._points: dict[float, list[float]] = {}

    def add(self, start: float, end: float, in_flight: float | None, cpu: float | None, lag_s: float) -> None:
        """Count one rollout; unknown values of the load are None."""
        if self._origin is None:
            self._origin = start
        at = (end - self._origin) // self._width_s
        point = self._points.get(at)
        if point is None:
            point = self._points[at] = [0, 0, 0.0, 0, 0.0, 0.0]
            if len(self._points) > MOST_POINTS:
                self._points, self._width_s = _doubled(self._points), self._width_s * 2
                point = self._points[at // 2]
        point[0] += 1
        if in_flight is not None:
            point[1] += 1
            point[2] += in_flight
        if cpu is not None:
            point[3] += 1
            point[4] += cpu
            if lag_s > point[5]:
                point[5] = lag_s

    def report(self, active: Stretches) -> Json:
        """The points in order. A point in which nothing ran is left out; one in which nothing finished is zero."""
        points, width_s = self._points, self._width_s
        finished = sum(point[0] for point in points.values())
        while len(points) > _FEW_POINTS and finished < _ROLLOUTS_A_POINT * len(points):
            points, width_s = _doubled(points), width_s * 2
        order = self._while_active(points, width_s, active)
        while len(order) > MOST_POINTS:
            points, width_s = _doubled(points), width_s * 2
            order = self._while_active(points, width_s, active)
        if len(order) == 1 and active.seconds > 0:  # one point stands for the whole time
            points, width_s, order = {0.0: points[order[0]]}, active.seconds, [0.0]
        first = order[0] if order else 0.0
        shown = [points.get(at, _NOTHING) for at in order]
        in_flight: list[float | None] = []
        for point in shown:  # rollouts that finish later are in flight now
            mean = point[2] / point[1] if point[1] else None
            in_flight.append(in_flight[-1] if point is _NOTHING and in_flight else mean)
        return {
            "start": round((self._origin or 0.0) + first * width_s, 6),
            "every_s": width_s,
            "at_s": [(at - first) * width_s for at in order],
            "rollouts_per_s": [point[0] / width_s for point in shown],
            "in_flight": in_flight,
            "cpu": [point[4] / point[3] if point[3] else None for point in shown],
            "lag_ms": [1e3 * point[5] if point[3] else None for point in shown],
        }

    def _while_active(self, points: dict[float, list[float]], width_s: float, active: Stretches) -> list[float]:
        """The places of all points from the first to the last, without gaps in the work."""
        order = sorted(points)
        places = []
        for before, at in zip([None, *order], order, strict=False):
            if before is not None and at - before <= 100 * MOST_POINTS:
                origin = self._origin or 0.0
                between = (before + step for step in range(1, int(at - before)))
                places += [each for each in between if active.holds(origin + (each + 0.5) * width_s)]
            places.append(at)
        return places


def _doubled(points: dict[float, list[float]]) -> dict[float, list[float]]:
    halved: dict[float, list[float]] = {}
    for at, point in points.items():
        there = halved.get(at // 2)
        if there is None:
            halved[at // 2] = list(point)
        else:
            worst = max(there[5], point[5])
            there[:] = [a + b for a, b in zip(there, point, strict=True)]
            there[5] = worst
    return halved
