"""`velo train`, and `tools/run.py`: find a recipe, change what is given, and train; or only say what would be done.

Nothing here needs torch until the training itself begins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import orjson

from velodrome.cli import main
from velodrome.errors import InputError
from velodrome.settings.spelling import hint
from velodrome.timing.report import duration
from velodrome.training.overrides import keys, what
from velodrome.training.plan import Plan, agents_each, misfits, notes, plan
from velodrome.training.recipes import Recipe, Resolved, attempt, find, listed, resolve
from velodrome.training.run.folder import folder
from velodrome.training.settings import Settings

Json = dict[str, Any]

FLAGS = ("-h", "--help", "--list", "--dry-run", "--json")
WIDEST = 40  # of a column; a longer cell pushes its own line only
NEEDED = ("torch", "numba", "numpy")
HELP = """usage: velo train RECIPE [name=value ...] [--dry-run [--json]]
       velo train RECIPE -h
       velo train --list

Train a small policy: taught by a scripted teacher, then PPO. tools/run.py is the same program.

RECIPE is a name that --list shows, or a Python file of your own (./mine.py, or
./mine.py:function). name=value sets an argument of the recipe or, with dots, any
setting (trainer.batch_size=1024). The same command again goes on where it was.

options:
  -h, --help   this text; after a recipe, its arguments and every setting with type, default and meaning
  --list       the recipes there are
  --dry-run    print the settings, what will be done and in which folder; train nothing
  --json       with --dry-run: as JSON

examples:
  velo train --list
  velo train cvc.thinky_supervised_to_ppo run=first base_missions=extractor_hub_30 trainer.total_timesteps=1e6
  velo train cvc.thinky_supervised_to_ppo supervised_steps=5_000 trainer.profiler.enabled=True --dry-run
  velo train cartpole seed=3 'trainer.profiler={"enabled": true, "wait_steps": 2}'
  velo train ./mine.py:second -h

docs/training.md explains recipes, settings, files and the timing tree."""


def run(argv: Sequence[str]) -> int:
    """Train by a recipe, or tell about it."""
    flags = {word for word in argv if word.startswith("-")}
    words = [word for word in argv if not word.startswith("-")]
    name = next((word for word in words if "=" not in word), None)
    if flags & {"--list", "-h", "--help"}:
        problems = list(_wrong(flags))
        if problems:
            raise InputError(*problems)
    if "--list" in flags:
        print(_table(listed()))
    elif flags & {"-h", "--help"}:
        print(explained(find(name)) if name else HELP)
    elif name is None:
        raise InputError("which recipe? velo train --list shows them")
    else:
        words.remove(name)
        return _resolved(find(name), words, flags)
    return 0


def _resolved(recipe: Recipe, words: Sequence[str], flags: set[str]) -> int:
    problems = list(_wrong(flags))
    try:
        tried = attempt(recipe, words)
    except InputError as error:
        raise InputError(*problems, *error.problems) from error.__cause__
    problems += tried.problems
    if tried.resolved is not None:
        problems += misfits(tried.resolved.settings, tried.unread)
    if tried.resolved is None or problems:
        raise InputError(*problems)
    resolved = tried.resolved
    if "--dry-run" not in flags:
        return _train(resolved)
    print(as_json(resolved) if "--json" in flags else as_text(resolved))
    return 0


def _wrong(flags: set[str]) -> Iterator[str]:
    for flag in sorted(flags - set(FLAGS)):
        option, equals, _ = flag.partition("=")
        if equals and option in FLAGS:
            yield f"{option} takes no value"
            continue
        way = f"; settings have no dashes: write {option.lstrip('-')}=…" if equals else hint(flag, FLAGS)
        yield f"no option {option}{way or '; see velo train --help'}"
    if "--json" in flags and "--dry-run" not in flags:
        yield "--json goes with --dry-run"


def _train(resolved: Resolved) -> int:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        ways = '"make train-setup", or pip install -c constraints.txt -e ".[train]"'
        raise InputError(f"training needs {', '.join(missing)}: in the source tree, {ways}")
    from velodrome.training.evaluate import evaluation_line
    from velodrome.training.loop import train

    try:
        outcome = train(resolved.settings, say)
    except KeyboardInterrupt:
        from velodrome.training.run.checkpoint import found

        there = "goes on from the last checkpoint" if found(folder(resolved.settings)) else "begins anew"
        say(f"stopped at once; the same command {there}")
        raise
    for line in outcome.advice:
        say(line)
    if outcome.finished or outcome.timing["parts"]:
        tried = f"; {evaluation_line(outcome.evaluation)}" if outcome.evaluation else ""
        say(f"{done(outcome.step, outcome.timing)}{tried}; {outcome.folder}")
    if not outcome.finished:
        say(f"stopped after agent step {outcome.step:,}; the same command goes on from there")
        main.leave_at_once = True  # Ctrl-C is often pressed twice; on torch's way out the second is a traceback
    print(orjson.dumps(outcome, default=str, option=orjson.OPT_INDENT_2).decode())
    return 0 if outcome.finished else 130


def done(step: int, timing: Json) -> str:
    """What was done, in a line: steps, the time that training took, how fast each phase was."""
    if not timing["parts"]:
        return f"nothing was left to train: all {step:,} agent steps were done before"
    phases = timing["phases"]
    spent_s = sum(each["rollout_s"] + each["update_s"] for each in phases.values())
    speeds = ", ".join(f"{name} {each['sps']:,.0f} steps/s" for name, each in phases.items())
    return f"{step:,} agent steps in {duration(spent_s * 1e3)} of training ({speeds})"


def say(text: str) -> None:
    """To whoever watches; stdout is for the result."""
    print(text, file=sys.stderr, flush=True)


def explained(recipe: Recipe) -> str:
    """What `-h` says about a recipe."""
    arguments = [
        (one.name, what(one.kind, one.field), "needed" if one.required else _value(one.default), _described(one.field))
        for one in recipe.arguments.values()
    ]
    parts = [f"usage: velo train {recipe.name} [name=value ...] [--dry-run [--json]]", recipe.text]
    if arguments:
        parts.append("arguments:\n" + _table(arguments, indent=2))
    if not any(one.required for one in recipe.arguments.values()):
        rows = setting_rows(resolve(recipe, []).settings)
        parts.append("settings, as the recipe has them:\n" + _table(rows, indent=2))
    return "\n\n".join(part for part in parts if part)


def setting_rows(settings: Settings) -> list[tuple[str, str, str, str]]:
    """Of every setting: its key, what it may be, its value here, what it is for."""
    return [
        (key.name, what(key.field.annotation, key.field), _value(key.value), _described(key.field))
        for key in keys(settings)
    ]


def as_text(resolved: Resolved) -> str:
    """The settings as a tree, what was changed, and what will be done."""
    changed = resolved.changed()
    rows: list[tuple[str, str, str]] = []
    shown: set[str] = set()
    for key in keys(resolved.settings):
        *above, name = key.name.split(".")
        for depth in range(1, len(above) + 1):
            group = ".".join(above[:depth])
            if group not in shown:
                shown.add(group)
                rows.append((f"{'  ' * (depth - 1)}{above[depth - 1]}", "", ""))
        was = f"was {_value(changed[key.name][0])}" if key.name in changed else ""
        rows.append((f"{'  ' * len(above)}{name}", _value(key.value), was))
    return f"{_table(rows)}\n\n{_table(_doing(resolved))}"


def _doing(resolved: Resolved) -> list[tuple[str, str]]:
    settings = resolved.settings
    counted = _plan(settings)
    place = ("folder", str(folder(settings)))
    if counted is None:
        return [("agents", "as the mission has; phases can be counted only then"), place]
    each = counted.agents // settings.env.num_envs
    rows = [
        ("agents", f"{counted.agents:,} = {settings.env.num_envs:,} environments x {each}"),
        ("rollout", f"{counted.horizon:,} steps of them all = {settings.trainer.batch_size:,} agent steps"),
    ]
    for one in counted.stretches:
        asked = ", the teacher asked" if one.asks_teacher else ""
        rows.append(
            (one.phase, f"{one.agent_steps:,} agent steps: {one.rollouts:,} rollouts, {one.updates:,} updates{asked}")
        )
    return [*rows, place, *(("note", line) for line in notes(settings, counted))]


def _notes(settings: Settings) -> list[str]:
    counted = _plan(settings)
    return [] if counted is None else notes(settings, counted)


def _plan(settings: Settings) -> Plan | None:
    each = agents_each(settings)
    return None if each is None else plan(settings, settings.env.num_envs * each)


def as_json(resolved: Resolved) -> str:
    """The same for programs."""
    settings = resolved.settings
    tree: Json = {}
    for key in keys(settings):
        _set(tree, key.name, key.value)
    told = {
        "recipe": resolved.recipe.name,
        "settings": tree,
        "changed": {name: {"from": old, "to": new} for name, (old, new) in resolved.changed().items()},
        "plan": _plan(settings),
        "notes": _notes(settings),
        "folder": str(folder(settings)),
    }
    return orjson.dumps(told, option=orjson.OPT_INDENT_2).decode()


def _set(tree: Json, name: str, value: Any) -> None:
    *above, last = name.split(".")
    for one in above:
        tree = tree.setdefault(one, {})
    tree[last] = value


def _described(field: Any) -> str:
    return (field.description or "") if field is not None else ""


def _value(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _table(rows: Iterable[Sequence[str]], *, indent: int = 0) -> str:
    lines = [tuple(row) for row in rows]
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*lines, strict=True)]
    padded = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in lines)
    return "\n".join(f"{'':<{indent}}{line}".rstrip() for line in padded)
