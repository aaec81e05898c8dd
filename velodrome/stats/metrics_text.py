"""Metrics by group and comparisons of runs as a person reads them in a terminal, and metrics as CSV.

Names come from files and from models; each passes `report.clean` on its way to a terminal.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import orjson

from velodrome.records.outcomes import FINISHED
from velodrome.stats.intervals import FEWEST, FEWEST_NUMBERS
from velodrome.timing.figures import counted, figure
from velodrome.timing.report import clean, table

Json = dict[str, Any]

SHOWN_FLIPS = 10
SHOWN_SETTINGS = 40
_LONGEST_SETTING = 60
_MOST_NOTES = 20
_LONGEST_CELL = 1000
_FORMULA = ("=", "+", "-", "@")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_SPREAD = ("std", "min", "median", "max")
shown = partial(figure, digits=4)
_COLUMNS = ("group", "metric", "n", "mean", "low", "high", *_SPREAD, "median_error")


def metrics_report(result: Json, *, fields: Sequence[str] = ()) -> str:
    """The run, then a table of the groups' rewards, and one for each of `fields`."""
    level = _level(result)
    parts = [
        _title(result),
        _outcomes(result["run"]["outcomes"]),
        _fields_table(result["run"], level),
        _rates_table(result["run"], level),
    ]
    if result["groups"]:
        parts.append(f"by {clean(result['by'])}")
        parts += [_groups_table(result, "reward", level), _difficulty(result)]
        for name in fields:
            if name != "reward" and name in result["run"]["fields"]:
                parts.append(clean(name))
                parts.append(_groups_table(result, name, level))
    return "\n\n".join(filter(None, [*parts, _too_few(result), _notes(result)]))


def _too_few(result: Json) -> str:
    """The reason, if a number that varies has no interval."""
    fields = [field for group in (result["run"], *result["groups"]) for field in group["fields"].values()]
    without = any(field["low"] is None and field["min"] != field["max"] for field in fields)
    least = (
        f"{FEWEST} tasks for shares and rates, {FEWEST_NUMBERS} for other numbers with {FEWEST} off the most usual one"
    )
    return f"-: too few tasks for an interval; it takes {least}" if result["level"] and without else ""


def _title(result: Json) -> str:
    counts = result["metrics"]
    odd = [f"{result['run'][name]} {name}" for name in ("deferred", "incomplete") if name in result["run"]]
    parts = [_counted(result["run"]), f"{counts['rollouts/failed']} failed", *odd]
    return f"{', '.join(parts)}; passed is a reward of {result['pass_at']:g} or more"


def _outcomes(outcomes: Json) -> str:
    """How many of the counted rollouts were stopped by a limit; empty if there are none."""
    stopped = {name: count for name, count in outcomes.items() if name != FINISHED}
    if not stopped:
        return ""
    by = ", ".join(f"{name} {count:,}" for name, count in stopped.items())
    return (
        f"counted: {outcomes.get(FINISHED, 0):,} finished and {sum(stopped.values()):,} stopped by a limit ({by});"
        " means and pass@k are over both, --by outcome sets them apart"
    )


def _counted(group: Json) -> str:
    return f"{counted(group['rollouts'], 'rollout')} of {counted(group['tasks'], 'task')}"


def _level(result: Json) -> str:
    return f"{100 * result['level']:.3g}% interval" if result["level"] else "interval"


def _fields_table(group: Json, level: str) -> str:
    rows = [
        (
            name,
            f"{field['n']:,}",
            shown(field["mean"]),
            interval(field),
            *(shown(field[each]) for each in _SPREAD),
        )
        for name, field in group["fields"].items()
    ]
    return table(("field", "n", "mean", level, *_SPREAD), rows) if rows else ""


def _rates_table(group: Json, level: str) -> str:
    rows = [(name, f"{rate['tasks']:,}", shown(rate["value"]), interval(rate)) for name, rate in group["rates"].items()]
    return table(("rate", "tasks", "value", level), rows) if rows else ""


def _groups_table(result: Json, name: str, level: str) -> str:
    rates = [rate for rate in result["run"]["rates"] if name == "reward" and rate.startswith("pass@")]
    rows = []
    limited = any(map(_stopped, result["groups"]))
    for group in result["groups"]:
        field = group["fields"].get(name, {})
        values = [group["rates"].get(rate, {}).get("value") for rate in rates]
        numbers = (shown(field.get(each)) for each in _SPREAD)
        counts = [f"{group['rollouts']:,}", f"{group['tasks']:,}"]
        counts += [f"{_stopped(group):,}"] if limited else []
        rows.append(
            (
                group["group"],
                *counts,
                shown(field.get("mean")),
                interval(field),
                *numbers,
                *map(shown, values),
            )
        )
    heads = ("rollouts", "tasks", *(("stopped",) if limited else ()))
    return table((result["by"], *heads, name, level, *_SPREAD, *rates), rows)


def _difficulty(result: Json) -> str:
    """How many tasks a model can learn from."""
    classes = result.get("difficulty")
    if classes is None:
        return ""
    text = (
        f"{len(classes['solved']):,} solved (every rollout passed), {len(classes['useful']):,} useful for learning"
        f" (rollouts differ), {len(classes['hopeless']):,} hopeless (none passed, all alike); --json names them"
    )
    repeats = max((group["rollouts"] for group in result["groups"]), default=0)
    return f"{text}\none rollout per task cannot show a useful one: +num_repeats=4 or more" if repeats < 2 else text


def _stopped(group: Json) -> int:
    """The number of rollouts that were stopped by a limit."""
    return sum(count for name, count in group["outcomes"].items() if name != FINISHED)


def _notes(result: Json) -> str:
    lines = [f"note: {clean(note, longest=300)}" for note in result["notes"][:_MOST_NOTES]]
    hidden = len(result["notes"]) - len(lines)
    return "\n".join([*lines, f"and {counted(hidden, 'more note')}"] if hidden > 0 else lines)


def interval(result: Json) -> str:
    if result.get("low") is None:
        return "-"
    return f"[{shown(result['low'])}, {shown(result['high'])}]"


def metrics_csv(result: Json) -> str:
    """One line per group and number; the whole run is the group without a name.

    Names are escaped for terminals, and for spreadsheets, which would run a name that looks like a formula.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for group in ({"group": "", **result["run"]}, *result["groups"]):
        for name, field in group["fields"].items():
            writer.writerow({"group": _cell(group["group"]), "metric": _cell(name), **field})
        for name, rate in group["rates"].items():
            parts = {"n": rate["tasks"], "mean": rate["value"], "low": rate["low"], "high": rate["high"]}
            writer.writerow({"group": _cell(group["group"]), "metric": _cell(name), **parts})
    return stream.getvalue()


def _cell(name: str) -> str:
    shown = clean(name, longest=_LONGEST_CELL)
    return f"'{shown}" if shown.lstrip()[:1] in _FORMULA and not _NUMBER.fullmatch(shown) else shown


def compare_report(result: Json, *, all_flips: bool = False) -> str:
    """Both runs, the settings and numbers that differ, the tasks that flipped, and the verdict last."""
    level = _level(result)
    parts = [
        "\n".join(_runs(result)),
        _settings(result["settings"]),
        _differences(result["fields"], level),
        *_compared_groups(result, level),
        "\n".join(_flips(result, all_flips)),
        _notes(result),
        result["verdict"],
    ]
    return "\n\n".join(filter(None, parts))


def _runs(result: Json) -> Iterator[str]:
    for side in ("a", "b"):
        files = clean(", ".join(result["files"][side]), longest=200)
        counts = result[side]
        kept = counted(counts["rollouts/kept"], "rollout")
        stopped = sum(count for name, count in counts.items() if name.startswith("stopped/"))
        limits = f", {stopped:,} stopped by a limit and counted" if stopped else ""
        yield f"{side.upper()}  {files}: {kept}, {counts['rollouts/failed']:,} failed{limits}"
    tasks = result["tasks"]
    yield f"{counted(tasks['both'], 'task')} in both, {tasks['only_a']:,} only in A, {tasks['only_b']:,} only in B"


def _settings(settings: Sequence[Json] | None) -> str:
    """The settings that differ between the run files."""
    if settings is None:
        return "settings: not compared, a run has no run file beside it"
    if not settings:
        return "settings: the run files say the same"
    rows = [(each["name"], setting_text(each["a"]), setting_text(each["b"])) for each in settings[:SHOWN_SETTINGS]]
    hidden = len(settings) - len(rows)
    drawn = table(("setting", "A", "B"), rows, left=3)
    return f"{drawn}\nand {counted(hidden, 'more setting')}; --json lists them" if hidden else drawn


def setting_text(value: Any) -> str:
    """A setting in a few characters; `-` where a run has none."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST_SETTING else f"{text[:_LONGEST_SETTING]}…"


def _differences(fields: Sequence[Json], level: str) -> str:
    rows = [
        (
            each["name"],
            shown(each["a"]),
            shown(each["b"]),
            shown(each["difference"], sign=True),
            interval(each),
            _tasks(each),
            "*" if each["low"] is not None and not each["low"] <= 0 <= each["high"] else "",
        )
        for each in fields
    ]
    if not rows:
        return ""
    drawn = table(("field", "A", "B", "B - A", level, "tasks", ""), rows)
    return f"{drawn}\n* the interval does not reach zero" if any(row[-1] for row in rows) else drawn


def _tasks(each: Json) -> str:
    a, b = each["tasks_a"], each["tasks_b"]
    return f"{a:,}" if a == b else f"{a:,} / {b:,}"


def _compared_groups(result: Json, level: str) -> Iterator[str]:
    for group in result.get("groups", ()):
        name = f"{clean(result['by'])} {clean(group['group'])}"
        main = [each for each in group["fields"] if each["name"] == "reward" or "@" in each["name"]]
        yield f"{name}: {group['verdict']}\n{_differences(main, level)}"


def _flips(result: Json, all_flips: bool) -> Iterator[str]:
    flipped = result["flipped"]
    yield f"flipped: {counted(flipped['to_pass'], 'task')} from fail to pass, {flipped['to_fail']:,} from pass to fail"
    flips = result["flips"] if all_flips else result["flips"][:SHOWN_FLIPS]
    rows = [
        (
            flip["task"],
            flip["prompt"],
            f"{flip['a_rate']:.2f} of {flip['a_n']}",
            f"{flip['b_rate']:.2f} of {flip['b_n']}",
        )
        for flip in flips
    ]
    if rows:
        yield table(("task", "prompt", "A", "B"), rows, left=2)
    hidden = flipped["to_pass"] + flipped["to_fail"] - len(rows)
    if hidden:
        yield f"and {hidden:,} more" + ("" if all_flips else "; --flips lists them")
