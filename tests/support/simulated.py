"""How often intervals hold the truth: data sets with a known mean, drawn again and again.

`python tests/support/simulated.py` prints the tables of docs/metrics.md; test_intervals.py holds a smaller run to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from velodrome.stats.intervals import Interval, mean_interval, paired_interval, unpaired_interval

Repeats = int | str
Sample = tuple[float, Interval | None]  # the truth, and what is printed
LEVEL = 0.95
STUDENT_3 = "Student's t, 3 degrees"


def counts(draw: np.random.Generator, tasks: int, repeats: Repeats) -> np.ndarray:
    """How many rollouts each task has."""
    return draw.choice([1, 2, 4, 8], tasks) if repeats == "mixed" else np.full(tasks, repeats)


def levels(draw: np.random.Generator, tasks: int, mean: float, differ: bool) -> np.ndarray:
    """How often each task passes: all alike, or of every difficulty around a mean."""
    return draw.beta(mean, 1 - mean, tasks) if differ else np.full(tasks, mean)


def share(draw: np.random.Generator, tasks: int, repeats: Repeats, differ: bool = False) -> Sample:
    """The truth and the interval of a reward of 0 or 1."""
    truth = draw.uniform(0.05, 0.95)
    tries = counts(draw, tasks, repeats)
    passed = draw.binomial(tries, levels(draw, tasks, truth, differ))
    return truth, mean_interval((passed / tries).tolist(), tries.tolist(), LEVEL, share_of=(0.0, 1.0))


NUMBERS: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "normal": (lambda draw, *shape: draw.normal(3.0, 1.0, shape), 3.0),
    "uniform": (lambda draw, *shape: draw.uniform(0.0, 1.0, shape), 0.5),
    "exponential": (lambda draw, *shape: draw.exponential(1.0, shape), 1.0),
    "log-normal, σ = 0.5": (lambda draw, *shape: draw.lognormal(0.0, 0.5, shape), float(np.exp(0.125))),
    "log-normal, σ = 1": (lambda draw, *shape: draw.lognormal(0.0, 1.0, shape), float(np.exp(0.5))),
    "Student's t, 5 degrees": (lambda draw, *shape: draw.standard_t(5, shape), 0.0),
    STUDENT_3: (lambda draw, *shape: draw.standard_t(3, shape), 0.0),
    "Laplace": (lambda draw, *shape: draw.laplace(0.0, 1.0, shape), 0.0),
    "gamma, shape 0.3": (lambda draw, *shape: draw.gamma(0.3, 1.0, shape), 0.3),
    "partial credit": (lambda draw, *shape: draw.beta(0.5, 2.0, shape), 0.2),
}


def number(draw: np.random.Generator, tasks: int, repeats: Repeats, kind: str) -> Sample:
    """The truth and the interval of a number whose tasks differ as much as the rollouts of one task do."""
    make, truth = NUMBERS[kind]
    tries = counts(draw, tasks, repeats)
    noise = draw.normal(0.0, 1.0, tasks) / np.sqrt(tries) * (repeats != 1)
    return truth, mean_interval((make(draw, tasks) + noise).tolist(), tries.tolist(), LEVEL)


def pass_at(draw: np.random.Generator, tasks: int, k: int, tries: int = 8) -> Sample:
    """The truth and the interval of pass@k."""
    mean = draw.uniform(0.05, 0.95)
    misses = np.arange(k)
    truth = float(1 - np.prod((1 - mean + misses) / (1 + misses)))
    passed = draw.binomial(tries, levels(draw, tasks, mean, True))
    left = np.arange(tries - k + 1, tries + 1)
    rates = 1 - np.prod(np.maximum(left - passed[:, None], 0) / left, axis=1)
    return truth, mean_interval(rates.tolist(), [1] * tasks, LEVEL, share_of=(0.0, 1.0))


def paired_share(draw: np.random.Generator, tasks: int, repeats: int) -> Sample:
    """The truth and the interval of the difference of two runs over the same tasks, rewards of 0 and 1."""
    before = draw.uniform(0.05, 0.95)
    after = float(np.clip(before + draw.normal(0.0, 0.2), 0.05, 0.95))
    gains = draw.binomial(repeats, np.full(tasks, after)) - draw.binomial(repeats, np.full(tasks, before))
    return after - before, paired_interval((gains / repeats).tolist(), LEVEL, furthest=1.0)


def paired_number(draw: np.random.Generator, tasks: int, repeats: int, kind: str) -> Sample:
    """The same of a number: every task has a level of its own, which both runs share."""
    make, _ = NUMBERS[kind]
    before, after = (make(draw, tasks, repeats).mean(axis=1) for _ in range(2))
    return 0.0, paired_interval((after - before).tolist(), LEVEL, furthest=None)


def unpaired_shares(draw: np.random.Generator, tasks: int, repeats: int) -> Sample:
    """The difference of two runs over different tasks, B with half again as many."""
    truths, means, ends = [], [], []
    for size in (tasks, tasks * 3 // 2):
        truth = draw.uniform(0.05, 0.95)
        rates = (draw.binomial(repeats, levels(draw, size, truth, True)) / repeats).tolist()
        truths.append(truth)
        means.append(sum(rates) / size)
        ends.append(mean_interval(rates, [repeats] * size, LEVEL, share_of=(0.0, 1.0)))
    return truths[1] - truths[0], unpaired_interval(means[0], ends[0], means[1], ends[1])


def unpaired_numbers(draw: np.random.Generator, tasks: int, kind: str) -> Sample:
    """The same of a number that varies twice as much in B."""
    make, truth = NUMBERS[kind]
    sides = [make(draw, tasks).tolist(), (2 * make(draw, tasks * 3 // 2)).tolist()]
    means = [sum(side) / len(side) for side in sides]
    ends = [mean_interval(side, [1] * len(side), LEVEL) for side in sides]
    return truth, unpaired_interval(means[0], ends[0], means[1], ends[1])


def coverage(draw: np.random.Generator, sets: int, one: Callable[[np.random.Generator], Sample]) -> tuple[int, int]:
    """How many of so many data sets have an interval that holds the truth, and how many have one at all."""
    held = printed = 0
    for _ in range(sets):
        truth, interval = one(draw)
        if interval is not None:
            printed += 1
            held += interval[0] <= truth <= interval[1]
    return held, printed


ROWS: dict[str, Callable[[np.random.Generator, int], Sample]] = {
    "reward of 0 or 1, one rollout per task": lambda draw, tasks: share(draw, tasks, 1),
    "the same, 4 rollouts, tasks alike": lambda draw, tasks: share(draw, tasks, 4),
    "the same, 4 rollouts, tasks of every difficulty": lambda draw, tasks: share(draw, tasks, 4, differ=True),
    "the same, 8 rollouts, tasks of every difficulty": lambda draw, tasks: share(draw, tasks, 8, differ=True),
    "the same, 1, 2, 4 or 8 rollouts": lambda draw, tasks: share(draw, tasks, "mixed", differ=True),
    "pass@4 of 8 rollouts": lambda draw, tasks: pass_at(draw, tasks, 4),
    "difference of rewards of 0 or 1, same tasks": lambda draw, tasks: paired_share(draw, tasks, 1),
    "the same, 4 rollouts per task": lambda draw, tasks: paired_share(draw, tasks, 4),
    "difference of rewards of 0 or 1, other tasks": lambda draw, tasks: unpaired_shares(draw, tasks, 4),
    **{kind: lambda draw, tasks, kind=kind: number(draw, tasks, 1, kind) for kind in NUMBERS},
    "exponential, 4 rollouts per task": lambda draw, tasks: number(draw, tasks, 4, "exponential"),
    "exponential, 1, 2, 4 or 8 rollouts": lambda draw, tasks: number(draw, tasks, "mixed", "exponential"),
    "difference of exponential numbers, same tasks": lambda draw, tasks: paired_number(draw, tasks, 1, "exponential"),
    "difference of exponential numbers, other tasks": lambda draw, tasks: unpaired_numbers(draw, tasks, "exponential"),
}
SHARES = list(ROWS)[:9]
SIZES = (10, 20, 30, 100, 600, 3000)


def table(sets: int) -> Iterator[str]:
    """The lines of the table, in Markdown."""
    yield f"| tasks | {' | '.join(f'{size:,}' for size in SIZES)} |"
    yield f"|---{'|---' * len(SIZES)}|"
    for name, one in ROWS.items():
        cells = []
        for tasks in SIZES:
            if tasks < 20 and name not in SHARES:
                cells.append("none")
                continue
            rounds = sets if tasks < 600 else sets // 4
            held, printed = coverage(np.random.default_rng(tasks), rounds, lambda draw, n=tasks, one=one: one(draw, n))
            cells.append(f"{held / printed:.1%}")
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    for line in table(int(__import__("sys").argv[1])):
        print(line, flush=True)
