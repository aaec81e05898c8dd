"""`velo collect` = `ng_collect_rollouts`: tasks in, rollouts out. stdout is the metrics, stderr the conversation."""

from __future__ import annotations

import asyncio
import gc
import shlex
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from velodrome import scope
from velodrome.cli import main
from velodrome.cli.options import ServerOptions, WatchOptions, load_options
from velodrome.cli.run_tables import run_end
from velodrome.cli.streams import kept_path, say
from velodrome.cli.tables import print_result, wants_json, without_json
from velodrome.cli.verb import Verb
from velodrome.cli.watching import watching
from velodrome.collector import collection
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface
from velodrome.collector.pace import Stop
from velodrome.collector.result import TERMINATED, Run
from velodrome.collector.settings import CollectSettings, SharedSettings
from velodrome.collector.sink import refuse_output
from velodrome.errors import InputError
from velodrome.profiling.profile_text import profile_tree, verdict_text
from velodrome.records.jsonl import loads
from velodrome.records.rollout import beside
from velodrome.serving.components import Servers
from velodrome.serving.process.options import ConnectionLimits
from velodrome.settings import Config, mask_text
from velodrome.settings.files import find_inputs, is_pattern
from velodrome.timing.report import for_stream
from velodrome.timing.screen import page_width
from velodrome.timing.stop_signals import on_stop_signal
from velodrome.wings import wing

Json = dict[str, Any]
T = TypeVar("T")
Shared = TypeVar("Shared", bound=SharedSettings)

SHOWN_REASONS = 5


class CollectOptions(CollectSettings, WatchOptions, ServerOptions, ConnectionLimits):
    """The settings of `velo collect`."""

    no_save: bool = Field(False, description="with only: print the rollout, and write nothing")


VERB = Verb(
    usage="velo collect ENVIRONMENT MODEL [TASKS] [-o ROLLOUTS] [--setting VALUE …]\n"
    "velo collect [+key=value …]      (also: ng_collect_rollouts)",
    about="""\
Run tasks x repeats against an agent, in parallel. Every finished rollout is in the output at once; the same command
again continues where it stopped. Failures go to <output>.failures.jsonl and are tried again on the next run.

ENVIRONMENT and MODEL are names of configs (velo envs lists environments; local_model, openai_model), or .yaml files.
TASKS is a .jsonl file; without one, the environment's examples. A terminal gets a table at the end, a pipe JSON;
--json is JSON everywhere.""",
    settings={"settings (docs/collect.md)": CollectOptions},
    plus=True,
    more="""\
  +config_paths=[a.yaml,b.yaml]  agents, models and environments (docs/config.md); not needed while servers run

exit code: 0 all kept, 1 a fault of ours, 2 a mistake in the input or config (a key that is refused, too),
3 finished with failures, 4 stopped by a budget or because a server stayed away, 130 interrupted, 143 terminated

examples:
  velo collect calculator local_model -o rollouts.jsonl
  velo collect calculator my_model.yaml tasks.jsonl -n 4 --parallel 32 --limit 100
  velo collect calculator my_model.yaml tasks.jsonl --only 9f31c2a0/0 --no-save     one rollout again, printed
  ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl
  ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +limit=100 +num_repeats=5 \\
      +responses_create_params.temperature=0.8 +num_samples_in_parallel=auto""",
)


def run(argv: Sequence[str]) -> int:
    """Collect, print the metrics, and say how it ended."""
    from velodrome.serving.discovery import find

    words, as_json = without_json(argv)
    config, options = load_options(CollectOptions, words)
    options, output = with_files(options)
    if options.no_save:
        if options.only is None:
            raise InputError("no_save prints one rollout: give its key, too (--only KEY)")
        options = options.model_copy(update={"output": None})
    config, servers = find(config, embedded=options.embedded)
    use_limits(options)
    command = shlex.join(["velo", "collect", *words])
    with watching(options, output, say) as surface:
        result = run_async(collect(options, config, servers, surface, command))
    if options.no_save:
        return show(result, as_json=as_json)
    return finish(result, output, as_json=as_json)


def show(result: Run, *, as_json: bool) -> int:
    """The rollout that was run alone, or why it failed."""
    for row in [*map(loads, result.lines), *result.failed_attempts]:
        print_result(row, partial(wing("viewer.transcript").transcript, row), as_json=as_json)
    say(result.summary())
    return result.exit_code


async def collect(
    settings: CollectSettings,
    config: Config,
    servers: Servers | None = None,
    surface: Surface | None = None,
    command: str | None = None,
) -> Run:
    """The collection as a command: Ctrl-C drains it, and notes and a progress bar go to stderr."""
    stop, shown = Stop(), surface or Surface(say, True)
    agents = ConfiguredAgents(config, servers)
    masked = None if command is None else mask_text(command, agents.secrets)
    with stopped_by_signals(stop), rare_garbage_collection():
        return await collection.collect(settings, agents, surface=replace(shown, stop=stop, command=masked))


@contextmanager
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Ctrl-C and SIGTERM drain the run. One of them after SIGTERM, or SIGTERM while it is stopping, ends it at once."""

    def end_now() -> None:
        stop.now = True
        stop.changed()

    def interrupt() -> None:
        (end_now if stop.reason == TERMINATED else stop.interrupt)()

    def terminate() -> None:
        stop.request(TERMINATED) if stop.reason is None else end_now()

    with on_stop_signal(interrupt, [signal.SIGINT]), on_stop_signal(terminate, [signal.SIGTERM]):
        yield


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cycles less often: a rollout makes none, and a search walks everything in flight."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def finish(result: Run, output: Path, *, as_json: bool = False) -> int:
    """The counts and a table for a person, the metrics for a script, the exit code for the shell."""
    as_json = wants_json(as_json)
    say(f"{result.summary()}  ->  {output}")
    if as_json:
        for reason, count in list(result.reasons.items())[:SHOWN_REASONS]:
            say(f"  {count} x {reason}")
    if result.failed:
        say(f"failures, with their reasons: {beside(output, 'failures.jsonl')}; the same command tries them again")
    for line in result.findings:
        say(line)
    if result.profile is not None and result.profile["rollouts"]:
        show_profile(result.profile, short=not as_json)
    for problem in result.unwritten:
        say(f"velo: {problem}; the rollouts are in {output}")
    print_result(result.metrics, lambda: run_end(result, output), as_json=as_json)
    return result.exit_code


def show_profile(profile: Json, *, short: bool = False) -> None:
    """Where the time went, and what to change; in short only what bounds throughput."""
    verdict = profile["verdict"]
    if short and not verdict["advice"]:
        return
    tree = "" if short else f"\n{profile_tree(profile)}\n\n"
    text = verdict_text({"paragraph": verdict["paragraph"]}, page_width(sys.stderr))
    say(for_stream(f"{tree}{text}", sys.stderr))
    if any(advice["override"] for advice in verdict["advice"]):
        say("(to try it: the same command with that, and +overwrite=true or another +output_jsonl_fpath)")


def with_files(options: CollectOptions) -> tuple[CollectOptions, Path]:
    """The settings with an input that is there and an output that can be written; and the output."""
    if options.input is None:
        raise InputError("no input: give +input_jsonl_fpath=tasks.jsonl (see velo collect --help)")
    sources = find_inputs(options.input)
    if is_pattern(options.input):
        if options.output is None:
            raise InputError(f"{options.input}: several files; give +output_jsonl_fpath=rollouts.jsonl, too")
        return with_output(options, options.input, options.output)
    return with_output(options, sources[0], options.output or Path(beside(sources[0], "rollouts.jsonl").name))


def with_output(options: Shared, source: Path, output: Path) -> tuple[Shared, Path]:
    """The settings with these files, and the output; an output that cannot be one is refused."""
    refuse_output(output, source)
    return options.model_copy(update={"input": source, "output": kept_path(output)}), output


def use_limits(options: ConnectionLimits) -> None:
    """Set the limits of connections, and ask the system for as many."""
    from velodrome.serving.process.limits import connections_within, raise_file_limit

    files = raise_file_limit()
    most, per_host = options.max_connections, options.max_connections_per_host
    possible = connections_within(files)
    if possible < min(most, per_host):
        say(f"at most {possible} connections at once, because this process may open {files} files (ulimit -n)")
    scope.connections.limit, scope.connections.limit_per_host = min(most, possible), per_host


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop, and close what it opened at the end.

    Code of an environment that does not end when it is cancelled must not keep the process: it is left behind. What it
    prints goes to stderr: stdout is the result.
    """
    import uvloop

    async def whole() -> T:
        async with scope.Scope():
            return await work

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        with redirect_stdout(sys.stderr):
            result = runner.run(whole())
        stuck = [task for task in asyncio.all_tasks(runner.get_loop()) if not task.done()]
    except BaseException:
        runner.close()
        raise
    if stuck:
        say(f"{len(stuck)} rollouts would not end when they were cancelled and are left behind")
        main.leave_at_once = True
    else:
        runner.close()
    return result
