"""`velo train`, and `tools/run.py`: find a recipe, apply overrides, and train; or only show what would be done.

Nothing here needs torch until training starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from velodrome.cli import main
from velodrome.cli.streams import help_width, say
from velodrome.cli.tables import print_lines, print_text, wants_json
from velodrome.cli.train_screen import Interrupt, make_dashboard
from velodrome.cli.train_sweep import show_trials, sweep_trials
from velodrome.errors import InputError
from velodrome.settings.names import hint
from velodrome.timing.report import duration
from velodrome.timing.screen import paragraphs
from velodrome.training.assignments import parse
from velodrome.training.explain import opening, plan_json, plan_text, recipe_help, recipe_list
from velodrome.training.recipes import find, resolve
from velodrome.training.run.train_folder import run_folder
from velodrome.training.settings import RunSettings
from velodrome.training.start import refuse_without_torch, train_settings
from velodrome.training.sweep.run_sweep import plan_sweep
from velodrome.training.sweep.search_space import read_sweep

FLAGS = ("-h", "--help", "--list", "--dry-run", "--json", "--sweep")
HELP = """usage: velo train RECIPE [name=value ...] [--sweep FILE] [--dry-run] [--json]
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
  --sweep FILE try the values of settings that a YAML file names, trial by trial, and show the best; the same
               command again continues (docs/training.md#sweeps)
  --dry-run    print the settings, the plan and the folder, or the first trials of a sweep; train nothing
  --json       the result, or with --dry-run the plan, as JSON, on a terminal too

examples:
  velo train --list
  velo train cvc.thinky_supervised_to_ppo run=first base_missions=extractor_hub_30 trainer.total_timesteps=1e6
  velo train cvc.thinky_supervised_to_ppo supervised_steps=5_000 trainer.profiler.enabled=True --dry-run
  velo train cartpole seed=3 'trainer.profiler={"enabled": true, "wait_steps": 2}'
  velo train cartpole --sweep sweep.yaml trainer.total_timesteps=50_000
  velo train ./mine.py:second -h

docs/training.md explains recipes, settings, files and the timing tree."""


def run(argv: Sequence[str]) -> int:
    """Train by a recipe, or show what would be done."""
    argv, sweep = _without_sweep(argv)
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
    values = parse(words, problems)
    as_json = "--json" in flags
    if sweep is not None:
        if problems:
            raise InputError(*problems)
        act = show_trials if "--dry-run" in flags else sweep_trials
        return act(plan_sweep(read_sweep(sweep), recipe, values), as_json=as_json)
    resolved = resolve(recipe, values, problems)
    if "--dry-run" not in flags:
        refuse_without_torch("training")
        say(opening(resolved))
        return _train(resolved.settings, as_json=as_json)
    if as_json:
        print_lines(orjson.dumps(plan_json(resolved), option=orjson.OPT_INDENT_2).decode())
    else:
        print_text(plan_text(resolved))
    return 0


def _without_sweep(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """The words without `--sweep FILE`, and the file."""
    words = list(argv)
    place = next((at for at, word in enumerate(words) if word.partition("=")[0] == "--sweep"), None)
    if place is None:
        return words, None
    _, equals, file = words.pop(place).partition("=")
    if not equals and place < len(words) and not words[place].startswith("-"):
        file = words.pop(place)
    if not file:
        raise InputError(
            "--sweep: which file? As in velo train cartpole --sweep sweep.yaml; see docs/training.md#sweeps"
        )
    return words, file


def _flag_problems(flags: set[str]) -> Iterator[str]:
    for flag in sorted(flags - set(FLAGS)):
        option, equals, _ = flag.partition("=")
        if equals and option in FLAGS:
            yield f"{option} takes no value"
            continue
        way = f"; settings have no dashes: write {option.lstrip('-')}=…" if equals else hint(flag, FLAGS)
        yield f"no option {option}{way or '; see velo train --help'}"


def _train(settings: RunSettings, *, as_json: bool) -> int:
    dashboard = make_dashboard(settings)
    interrupt = Interrupt(dashboard.above(say) if dashboard else say)
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
