"""`velo train`, and `tools/run.py`: find a recipe, apply overrides, and train; or only show what would be done.

Nothing here needs torch until training starts.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import orjson

from velodrome.cli import main
from velodrome.cli.streams import help_width, say
from velodrome.cli.tables import print_lines, print_text, wants_json
from velodrome.errors import InputError
from velodrome.settings.names import hint
from velodrome.timing.report import duration
from velodrome.timing.screen import paragraphs
from velodrome.timing.stop_signals import StopSignals
from velodrome.training.assignments import parse
from velodrome.training.explain import plan_json, plan_text, recipe_help, recipe_list
from velodrome.training.recipes import find, resolve
from velodrome.training.run.train_folder import run_folder
from velodrome.training.settings import RunSettings
from velodrome.training.start import train_settings

FLAGS = ("-h", "--help", "--list", "--dry-run", "--json")
HELP = """usage: velo train RECIPE [name=value ...] [--dry-run] [--json]
       velo train RECIPE -h
       velo train --list

Train a small policy: taught by a scripted teacher, then PPO. tools/run.py is the same program.

RECIPE is a name that --list shows, or a Python file of your own (./mine.py, or
./mine.py:function). name=value sets an argument of the recipe or, with dots, any
setting (trainer.batch_size=1024). The same command again resumes the run. The result goes to stdout as
JSON: folder, step, finished, evaluation, timing, advice, traces; on a terminal as a table with the
curve of the return. Everything else goes to stderr.

options:
  -h, --help   this text; after a recipe, its arguments and every setting with type, default and meaning
  --list       list the recipes
  --dry-run    print the settings, the plan and the folder; train nothing
  --json       the result, or with --dry-run the plan, as JSON, on a terminal too

examples:
  velo train --list
  velo train cvc.thinky_supervised_to_ppo run=first base_missions=extractor_hub_30 trainer.total_timesteps=1e6
  velo train cvc.thinky_supervised_to_ppo supervised_steps=5_000 trainer.profiler.enabled=True --dry-run
  velo train cartpole seed=3 'trainer.profiler={"enabled": true, "wait_steps": 2}'
  velo train ./mine.py:second -h

docs/training.md explains recipes, settings, files and the timing tree."""


def run(argv: Sequence[str]) -> int:
    """Train by a recipe, or show what would be done."""
    flags = {word for word in argv if word.startswith("-")}
    words = [word for word in argv if not word.startswith("-")]
    name = next((word for word in words if "=" not in word), None)
    problems = list(_flag_problems(flags))
    if flags & {"--list", "-h", "--help"}:
        if problems:
            raise InputError(*problems)
        if name or "--list" in flags:
            print_text(recipe_help(find(name)) if name and "--list" not in flags else recipe_list())
        else:
            print(paragraphs(HELP, help_width()))
        return 0
    if name is None:
        raise InputError("which recipe? velo train --list shows them")
    words.remove(name)
    recipe = find(name)
    resolved = resolve(recipe, parse(words, problems), problems)
    as_json = "--json" in flags
    if "--dry-run" not in flags:
        return _train(resolved.settings, as_json=as_json)
    if as_json:
        print_lines(orjson.dumps(plan_json(resolved), option=orjson.OPT_INDENT_2).decode())
    else:
        print_text(plan_text(resolved))
    return 0


def _flag_problems(flags: set[str]) -> Iterator[str]:
    for flag in sorted(flags - set(FLAGS)):
        option, equals, _ = flag.partition("=")
        if equals and option in FLAGS:
            yield f"{option} takes no value"
            continue
        way = f"; settings have no dashes: write {option.lstrip('-')}=…" if equals else hint(flag, FLAGS)
        yield f"no option {option}{way or '; see velo train --help'}"


def _train(settings: RunSettings, *, as_json: bool) -> int:
    interrupt = Interrupt(say)
    dashboard = None
    if settings.output.dashboard:
        with suppress(ImportError):  # reported by train_settings
            from velodrome.training.run.dashboard import Dashboard

            dashboard = Dashboard(sys.stderr, settings.trainer.total_timesteps)
            interrupt = Interrupt(dashboard.above(say))
    try:
        with interrupt.installed():
            result = train_settings(settings, say=say, stop=lambda: interrupt.requested, dashboard=dashboard)
    except KeyboardInterrupt:
        kept = any(run_folder(settings).glob("checkpoint_*.pt"))
        say(f"stopped at once; the same command {'resumes from the last checkpoint' if kept else 'starts over'}")
        raise
    for line in result.advice:
        say(line)
    if wants_json(as_json) and (result.finished or result.timing["parts"]):
        from velodrome.training.evaluate import evaluation_line

        score = f"; {evaluation_line(result.evaluation)}" if result.evaluation else ""
        say(f"{summary(result.step, result.timing)}{score}; {result.folder}")
    if not result.finished:
        say(f"stopped after agent step {result.step:,}; the same command resumes from there")
        main.leave_at_once = True  # Ctrl-C is often pressed twice; during torch's exit the second is a traceback
    if wants_json(as_json):
        print_lines(orjson.dumps(result, default=str, option=orjson.OPT_INDENT_2).decode())
    else:
        from velodrome.cli.train_tables import train_table

        print_text(train_table(result.folder, result.step, result.timing, result.evaluation))
    return 0 if result.finished else 130


def summary(step: int, timing: dict[str, Any]) -> str:
    """A line: steps, the time training took, the speed of each phase."""
    if not timing["parts"]:
        return f"nothing was left to train: all {step:,} agent steps were done before"
    phases = timing["phases"]
    spent_s = sum(each["rollout_s"] + each["update_s"] for each in phases.values())
    speeds = ", ".join(f"{name} {each['sps']:,.0f} steps/s" for name, each in phases.items())
    return f"{step:,} agent steps in {duration(spent_s * 1e3)} of training ({speeds})"


class Interrupt:
    """Ctrl-C or SIGTERM once: stop after this epoch. Twice: at once."""

    def __init__(
        self, say: Callable[[str], None] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._signals = StopSignals(clock=clock)
        self.requested = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals inside. Only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._signals.counts(number):
            return
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        if self._say:
            with suppress(RuntimeError):  # the same stream is being written to
                self._say("stopping after this epoch; once more stops at once")
