"""The flags that `velo metrics` and `velo compare` share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from velodrome.cli.parsing import number
from velodrome.stats.metrics import PASS_REWARD

if TYPE_CHECKING:
    from velodrome.stats.group import MetricsSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
    """What decides how numbers are computed."""
    add = parser.add_argument
    add("--by", metavar="FIELD", help="agent, task, or any field of the rows (info.level reaches inside)")
    add("--fields", type=_names, metavar="NAMES", help="only these numbers, and the reward (reward,tokens)")
    add(
        "--k",
        type=_sizes,
        metavar="1,2,4",
        help="the k of pass@k, pass^k, majority@k [1, 2, 4, … and the largest that half of the tasks have]",
    )
    add("--pass-at", type=number, metavar="REWARD", help=f"the reward from which a rollout passed [{PASS_REWARD}]")
    add("--ci", type=_level, metavar="LEVEL", help="the level of confidence intervals, 0 for none [0.95]")


def settings_of(given: argparse.Namespace) -> MetricsSettings:
    """The flags, with defaults for those that were not given."""
    from velodrome.stats.group import MetricsSettings

    usual = MetricsSettings()
    return MetricsSettings(
        by=given.by,
        ks=given.k,
        pass_at=PASS_REWARD if given.pass_at is None else given.pass_at,
        level=usual.level if given.ci is None else given.ci,
        fields=given.fields,
    )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"names with commas between them, not {text!r:.40}")
    return names


def _sizes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 9 and int(part) >= 1 for part in parts):
        raise argparse.ArgumentTypeError(f"whole numbers from 1 on with commas between them, not {text!r:.40}")
    return tuple(int(part) for part in parts)


def _level(text: str) -> float:
    value = number(text)
    if value and not 0.5 <= value <= 0.999:
        raise argparse.ArgumentTypeError(f"a share from 0.5 to 0.999, such as 0.95, or 0 for none; not {text!r:.40}")
    return value
