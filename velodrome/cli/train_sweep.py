"""`velo train --sweep`: run the trials of a sweep, or show the first ones, and the best at the end."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from velodrome.cli import main
from velodrome.cli.streams import say
from velodrome.cli.tables import next_step, print_lines, print_result, print_text, wants_json
from velodrome.cli.train_screen import Interrupt, make_dashboard
from velodrome.timing.invisible import printed_json
from velodrome.timing.report import counted, table
from velodrome.training.settings import RunSettings
from velodrome.training.start import train_settings
from velodrome.training.sweep.run_sweep import SweepPlan, SweepResult, run_sweep
from velodrome.training.sweep.trials import typed

if TYPE_CHECKING:
    from velodrome.training.loop import TrainingResult

_SHOWN = 5
_LONGEST = 200


def show_trials(plan: SweepPlan, *, as_json: bool) -> int:
    """The values of the first trials. Those of tpe depend on results later on."""
    trials = [(number, plan.proposed(number, {})) for number in range(min(_SHOWN, plan.sweep.trials))]
    lines = [f"trial {number}: {typed(values)}" for number, values in trials]
    if plan.sweep.trials > len(trials):
        lines.append(f"… {plan.sweep.trials} in all")
    shown = [{"trial": number, "values": values, "words": typed(values)} for number, values in trials]
    result = {"folder": str(plan.folder), "sweep": plan.sweep.model_dump(exclude_none=True), "first": shown}
    print_lines(printed_json(result)) if as_json else print_text("\n".join([*lines, f"folder: {plan.folder}"]))
    return 0


def sweep_trials(plan: SweepPlan, *, as_json: bool) -> int:
    """Run what is missing, and show the best."""
    say_now: Callable[[str], None] = say

    def train(settings: RunSettings) -> TrainingResult:
        nonlocal say_now
        dashboard = make_dashboard(settings)
        say_now = dashboard.above(say) if dashboard else say
        return train_settings(settings, say=say, stop=lambda: interrupt.requested, dashboard=dashboard)

    interrupt = Interrupt(lambda text: say_now(text))
    try:
        with interrupt.installed():
            result = run_sweep(plan, train, say, lambda: interrupt.requested)
    except KeyboardInterrupt:
        say("stopped at once; the same command continues the sweep")
        raise
    if wants_json(as_json):
        say(ranking_table(result))
    if not result.finished:
        say(f"stopped after {counted(len(result.trials), 'trial')}; the same command continues the sweep")
        main.leave_at_once = True
    print_result(result.as_json(), lambda: ranking_table(result), as_json=as_json)
    return 130 if not result.finished else 0 if result.best else 1


def ranking_table(result: SweepResult) -> str:
    """The best trials, their values as words to paste, and what failed."""
    ranking, failed = result.ranking, [trial for trial in result.trials if trial.value is None]
    head = ("", "trial", result.sweep.metric, "")
    rows = [
        (str(place), str(trial.trial), f"{trial.value:g}", trial.words)
        for place, trial in enumerate(ranking[:_SHOWN], 1)
    ]
    lines = [table(head, rows, left=4, longest=_LONGEST)] if rows else []
    if failed:
        lines.append(f"{counted(len(failed), 'trial')} failed, as trial {failed[0].trial}: {failed[0].reason}")
    best = result.best
    if best is not None:
        lines.append(f"best: {best.words}")
        lines.append(next_step(f"velo view {shlex.quote(str(result.folder / best.runs[0]['folder']))}"))
    return "\n".join(lines)
