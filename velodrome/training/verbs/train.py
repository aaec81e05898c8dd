"""`velo train`, and `tools/run.py`: find a recipe, apply overrides, and train; or only show what would be done.

Nothing here needs torch until training starts.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field

from velodrome.cli import main
from velodrome.cli.streams import help_width, kept_path, say, typed_path
from velodrome.cli.tables import print_lines, print_result, print_text, wants_json
from velodrome.cli.verb import JsonFlag, Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.settings.values import FilePath
from velodrome.timing.figures import counted, duration
from velodrome.timing.invisible import printed_json
from velodrome.timing.stop_signals import StopSignals
from velodrome.training.assignments import parse
from velodrome.training.explain import opening, plan_json, plan_text, recipe_help, recipe_list
from velodrome.training.recipes import find, resolve
from velodrome.training.run.dashboard import Dashboard
from velodrome.training.run.train_folder import run_folder
from velodrome.training.settings import RunSettings
from velodrome.training.start import refuse_without_torch, set_up, train_settings
from velodrome.training.sweep import SweepPlan, plan_sweep, read_sweep, run_sweep, typed
from velodrome.training.verbs.tables import ranking_table, train_table

if TYPE_CHECKING:
    from velodrome.training.loop import TrainingResult

_SHOWN = 5  # trials of a dry run


class TrainFlags(JsonFlag):
    """The flags of `velo train`."""

    words: tuple[str, ...] = argument((), title="RECIPE name=value", description="a recipe, and what differs from it")
    every: bool = Field(False, alias="list", description="list the recipes")
    sweep: FilePath | None = Field(
        None,
        description="try the values of settings that a YAML file names, and show the best (docs/training.md#sweeps)",
    )
    dry_run: bool = Field(
        False, description="print settings, plan and folder, or a sweep's first trials; train nothing"
    )


TRAIN = Verb(
    usage="velo train RECIPE [name=value ...] [flags]\nvelo train RECIPE -h\nvelo train --list",
    about="""\
Train a small policy: taught by a scripted teacher, then PPO. tools/run.py is the same program.

RECIPE is a name that --list shows, or a Python file of your own (./mine.py, or
./mine.py:function); with -h after it, its arguments and every setting with type, default and meaning are printed.
name=value sets an argument of the recipe or, with dots, any
setting (trainer.batch_size=1024). The same command again resumes the run or the sweep. The result goes to stdout as
JSON: folder, step, finished, evaluation, timing, advice, traces; on a terminal as a table with the
curve of the return. Everything else goes to stderr.""",
    settings={"flags": TrainFlags},
    more="""\
examples:
  velo train --list
  velo train cvc.thinky_supervised_to_ppo run=first base_missions=extractor_hub_30 trainer.total_timesteps=1e6
  velo train cvc.thinky_supervised_to_ppo supervised_steps=5_000 trainer.profiler.enabled=True --dry-run
  velo train cartpole seed=3 'trainer.profiler={"enabled": true, "wait_steps": 2}'
  velo train cartpole --sweep sweep.yaml trainer.total_timesteps=50_000
  velo train ./mine.py:second -h

docs/training.md explains recipes, settings, files and the timing tree.""",
)
HELP = TRAIN.help()


def run(argv: Sequence[str]) -> int:
    """Train by a recipe, or show what would be done."""
    helps = {"-h", "--help"} & set(argv)
    flags = read_flags(TrainFlags, [word for word in argv if word not in helps], "velo train")
    words = list(flags.words)
    name = next((word for word in words if "=" not in word), None)
    if helps or flags.every:
        if name is None and helps:
            print(TRAIN.help(help_width()))
        else:
            print_text(recipe_list() if flags.every or name is None else recipe_help(find(name)))
        return 0
    if name is None:
        raise InputError("which recipe? velo train --list shows them")
    words.remove(name)
    recipe = find(name)
    problems: list[str] = []
    values = parse(words, problems)
    if flags.sweep is not None:
        if problems:
            raise InputError(*problems)
        act = _show_trials if flags.dry_run else _sweep
        return act(plan_sweep(read_sweep(flags.sweep), recipe, values), as_json=flags.as_json)
    resolved = resolve(recipe, values, problems)
    if not flags.dry_run:
        set_up(say)
        refuse_without_torch("training")
        say(opening(resolved))
        return _train(resolved.settings, as_json=flags.as_json)
    if flags.as_json:
        print_lines(orjson.dumps(plan_json(resolved), option=orjson.OPT_INDENT_2).decode())
    else:
        print_text(plan_text(resolved))
    return 0


class Interrupt:
    """Ctrl-C or SIGTERM once: stop after this epoch. Twice: at once."""

    def __init__(self, say: Callable[[str], None] = say, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.say = say
        self._signals = StopSignals(clock=clock)
        self.requested = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals inside, as only a main thread can. What an environment prints goes to stderr."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._receive)
        try:
            with redirect_stdout(sys.stderr):
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
        with suppress(RuntimeError):  # the same stream is being written to
            self.say("stopping after this epoch; once more stops at once")

    def stopped(self) -> bool:
        """Whether it was interrupted."""
        return self.requested

    def train(self, settings: RunSettings) -> TrainingResult:
        """One run with its dashboard, until it is interrupted."""
        if not settings.output.dashboard:
            return train_settings(settings, say=self.say, stop=self.stopped)
        dashboard = Dashboard(sys.stderr, settings.trainer.total_timesteps)
        self.say = dashboard.above(say)
        try:
            return train_settings(settings, say=self.say, stop=self.stopped, watch=dashboard.show)
        finally:
            dashboard.clear()


def _train(settings: RunSettings, *, as_json: bool) -> int:
    kept_path(run_folder(settings).parent)
    interrupt = Interrupt()
    try:
        with interrupt.installed():
            result = interrupt.train(settings)
    except KeyboardInterrupt:
        kept = any(run_folder(settings).glob("checkpoint_*.pt"))
        say(f"stopped at once; the same command {'resumes from the last checkpoint' if kept else 'starts over'}")
        raise
    result = replace(result, folder=typed_path(result.folder), traces=[*map(typed_path, result.traces)])
    for line in result.advice:
        say(line)
    if wants_json(as_json) and (result.finished or result.timing["parts"]):
        from velodrome.training.evaluate import evaluation_line

        score = f"; {evaluation_line(result.evaluation)}" if result.evaluation else ""
        say(f"{summary(result.step, result.timing)}{score}; {result.folder}")
    if not result.finished:
        again = "starts afresh: the profiler is on" if settings.trainer.profiler.enabled else "resumes from there"
        say(f"stopped after agent step {result.step:,}; the same command {again}")
        main.leave_at_once = True  # Ctrl-C is often pressed twice; during torch's exit the second is a traceback
    if wants_json(as_json):
        print_lines(orjson.dumps(result, default=str, option=orjson.OPT_INDENT_2).decode())
    else:
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


def _show_trials(plan: SweepPlan, *, as_json: bool) -> int:
    """The values of the first trials. Those of tpe depend on results later on."""
    trials = [(number, plan.proposed(number, ())) for number in range(min(_SHOWN, plan.sweep.trials))]
    lines = [f"trial {number}: {typed(values)}" for number, values in trials]
    lines += [f"… {plan.sweep.trials} in all"] if plan.sweep.trials > len(trials) else []
    shown = [{"trial": number, "values": values, "words": typed(values)} for number, values in trials]
    result = {"folder": str(plan.folder), "sweep": plan.sweep.model_dump(), "first": shown}
    print_lines(printed_json(result)) if as_json else print_text("\n".join([*lines, f"folder: {plan.folder}"]))
    return 0


def _sweep(plan: SweepPlan, *, as_json: bool) -> int:
    """Run what is missing, and show the best."""
    plan = replace(plan, folder=kept_path(plan.folder))  # an environment may change the working directory
    interrupt = Interrupt()
    try:
        with interrupt.installed():
            result = run_sweep(plan, interrupt.train, say, interrupt.stopped)
    except KeyboardInterrupt:
        say("stopped at once; the same command continues the sweep")
        raise
    result = replace(result, folder=typed_path(result.folder))
    if wants_json(as_json):
        say(ranking_table(result))
    if not result.finished:
        say(f"stopped after {counted(len(result.trials), 'trial')}; the same command continues the sweep")
        main.leave_at_once = True
    print_result(result.as_json(), lambda: ranking_table(result), as_json=as_json)
    return 130 if not result.finished else 0 if result.best else 1
