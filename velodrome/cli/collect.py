"""`velo collect` = `ng_collect_rollouts`: tasks in, rollouts out. stdout is the metrics, stderr the conversation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from velodrome.cli import main
from velodrome.cli.settings import Setting, read_settings, settings_help
from velodrome.cli.watching import WATCHING, watching
from velodrome.collector.budget import Budget
from velodrome.collector.collection import collect
from velodrome.collector.order import Options, Outcome
from velodrome.collector.pace import DEFAULT_PARALLEL
from velodrome.errors import InputError
from velodrome.profiling.profile_text import profile_tree, verdict_text
from velodrome.records.rollout import beside
from velodrome.serving.connect import Servers
from velodrome.settings import Config, find_file, load
from velodrome.settings.files import way_to_data
from velodrome.timing.report import speaks_unicode
from velodrome.timing.unseen import printed_json

Json = dict[str, Any]
T = TypeVar("T")

SHOWN_REASONS = 5

SERVERS = (
    Setting("head_server", "object", {}, "{host, port} of the head server [127.0.0.1, 11000]"),
    Setting("server_token", "text", None, "the token that servers want; or VELODROME_TOKEN"),
    Setting("embedded", "flag", False, "run without servers, all in this process, even if some run"),
)
LIMITS = (
    Setting("global_aiohttp_connector_limit", "count", 102400, "connections at most"),
    Setting("global_aiohttp_connector_limit_per_host", "count", 1024, "connections at most to one server"),
)
SETTINGS = (
    Setting("input_jsonl_fpath", "path", None, "the tasks: .jsonl or .jsonl.zst"),
    Setting("output_jsonl_fpath", "path", None, "where rollouts go [<input>.rollouts.jsonl in this folder]"),
    Setting("agent_name", "text", None, "the agent [each row's agent_ref, else the only agent]"),
    Setting("limit", "count", None, "how many tasks [all]"),
    Setting("num_repeats", "count", 1, "rollouts per task"),
    Setting("num_samples_in_parallel", "parallel", DEFAULT_PARALLEL, "rollouts in flight, or auto"),
    Setting("responses_create_params", "object", {}, "overrides for every task (.temperature=0.7)"),
    Setting("defer_verification", "flag", False, "leave the reward for velo verify"),
    Setting("overwrite", "flag", False, "throw away what the output has"),
    Setting("allow_mixed", "flag", False, "add to rollouts made with other settings"),
    Setting("max_total_tokens", "count", None, "stop after so many tokens"),
    Setting("max_wall_s", "number", None, "stop after so many seconds"),
    Setting("max_failures", "number", None, "stop after more failures than this; below 1 a share"),
    Setting("drain_s", "number", 30.0, "how long Ctrl-C or a budget waits for what is in flight"),
    Setting("server_wait_s", "number", 300.0, "how long to wait for a server that is away"),
    Setting("sync_every_s", "number", 1.0, "how often the disk is asked to keep what was written"),
    *WATCHING,
    *SERVERS,
    *LIMITS,
)
HELP = f"""usage: velo collect [+key=value …]      (also: ng_collect_rollouts)

Run tasks x repeats against an agent, in parallel. Every finished rollout is in the output at once; the same command
again goes on where it stopped. Failures go to <output>.failures.jsonl and are tried again on the next run.

settings (docs/collect.md):
{settings_help(SETTINGS)}
  +config_paths=[a.yaml,b.yaml]         agents, models and environments (docs/config.md); not needed while
                                        servers run (velo run), which are used if they are there

exit code: 0 all kept, 1 a fault of ours, 2 a mistake in the input or config, 3 finished with failures,
4 stopped by a budget or because a server stayed away, 130 interrupted

examples:
  ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl
  ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +limit=100 +num_repeats=5 \\
      +responses_create_params.temperature=0.8 +num_samples_in_parallel=auto"""


def run(argv: Sequence[str]) -> int:
    """Collect, print the metrics, and say how it ended."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    config = load(argv, known=[setting.name for setting in SETTINGS])
    options = make_options(config)
    given = read_settings(config.settings, WATCHING)
    config, servers = find_servers(config)
    use_limits(config)
    with watching(given, options.output, say) as watchers:
        outcome = run_async(collect(replace(options, watchers=watchers), config, say, servers))
    return finish(outcome, options.output)


def find_servers(config: Config, *, scoring: bool = False) -> tuple[Config, Servers]:
    """The servers that run, and the config they give; none if there are none, or if they are not wanted."""
    from velodrome.serving.discovery import find

    return find(config, embedded=read_settings(config.settings, SERVERS)["embedded"], scoring=scoring)


def finish(outcome: Outcome, output: Path) -> int:
    """The account for a person, the metrics for a script, the exit code for the shell."""
    say(f"{outcome.summary()}  ->  {output}")
    for reason, count in list(outcome.reasons.items())[:SHOWN_REASONS]:
        say(f"  {count} x {reason}")
    if outcome.failed:
        say(f"failures, with their reasons: {beside(output, 'failures.jsonl')}; the same command tries them again")
    for line in outcome.findings:
        say(line)
    if outcome.profile is not None and outcome.profile["rollouts"]:
        tell_profile(outcome.profile)
    for problem in outcome.unwritten:
        say(f"velo: {problem}; the rollouts are in {output}")
    print(printed_json(outcome.metrics))
    return outcome.exit_code


def tell_profile(profile: Json) -> None:
    """Where the time went, and what to change."""
    plain, verdict = not speaks_unicode(sys.stderr), profile["verdict"]
    say(f"\n{profile_tree(profile, ascii_only=plain)}\n")
    say(verdict_text({"paragraph": verdict["paragraph"]}, ascii_only=plain))
    if any(advice["override"] for advice in verdict["advice"]):
        say("(to try it: the same command with that, and +overwrite=true or another +output_jsonl_fpath)")


def make_options(config: Config) -> Options:
    """The settings under their inner names."""
    given = read_settings(config.settings, SETTINGS)
    if given["input_jsonl_fpath"] is None:
        raise InputError("no input: give +input_jsonl_fpath=tasks.jsonl (see velo collect --help)")
    source = find_input(given["input_jsonl_fpath"])
    output = given["output_jsonl_fpath"]
    if output is None:
        output = Path(beside(source, "rollouts.jsonl").name)
    refuse_output(output, source)
    return Options(
        input=source,
        output=output,
        agent=given["agent_name"],
        limit=given["limit"],
        repeats=given["num_repeats"],
        parallel=given["num_samples_in_parallel"],
        overrides=dict(given["responses_create_params"]),
        defer=given["defer_verification"],
        overwrite=given["overwrite"],
        allow_mixed=given["allow_mixed"],
        budget=Budget(given["max_total_tokens"], given["max_wall_s"], given["max_failures"]),
        drain_s=given["drain_s"],
        server_wait_s=given["server_wait_s"],
        sync_every_s=given["sync_every_s"],
        timing_every=given["timing_every"],
    )


def find_input(path: Path) -> Path:
    """The input file: in the working directory, else in the package."""
    found = find_file(str(path), Path.cwd())
    if found is None:
        raise InputError(f"{path}: no such file (looked in this folder and in the package){way_to_data(path)}")
    if not found.is_file():
        raise InputError(f"{path}: not a regular file; the input is read twice, so a pipe will not do")
    return path if path.exists() else found


def refuse_output(output: Path, source: Path) -> None:
    """An output that cannot be one, said before anything runs."""
    if not output.name.endswith((".jsonl", ".jsonl.zst")):
        raise InputError(f"{output}: an output ends in .jsonl or .jsonl.zst")
    try:
        there = output.exists()
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
    twin = output.with_suffix("") if output.suffix == ".zst" else output.with_name(f"{output.name}.zst")
    if twin.exists():
        raise InputError(f"{output}: {twin} is there, and both would share one run file; give another name")
    if there and not output.is_file():
        what = "a folder" if output.is_dir() else "not a regular file"
        raise InputError(f"{output}: {what}; give a file")
    if there and output.samefile(source):
        raise InputError(f"{output}: input and output are the same file")
    for kind in ("failures.jsonl", "metrics.json", "run.json"):
        file = beside(output, kind)
        if file.exists() and file.samefile(source):
            raise InputError(f"{source}: a collection into {output} writes to it; give another output")


def use_limits(config: Config) -> None:
    """Hand the connection limits to the HTTP client, and ask the system for as many."""
    from velodrome import http
    from velodrome.serving.process.limits import connections_within, raise_file_limit

    files = raise_file_limit()
    limits = read_settings(config.settings, LIMITS)
    most, per_host = (limits[setting.name] for setting in LIMITS)
    possible = connections_within(files)
    if possible < min(most, per_host):
        say(f"at most {possible} connections at once, because this process may open {files} files (ulimit -n)")
    http.configure(limit=min(most, possible), limit_per_host=per_host)


def say(line: str) -> None:
    """One line to the person who is watching."""
    print(line, file=sys.stderr, flush=True)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop, and close the shared HTTP client at the end.

    Code of an environment that does not end when it is cancelled must not keep the process: it is left behind. What it
    prints goes to stderr: stdout is the result.
    """
    import uvloop

    from velodrome import http

    async def whole() -> T:
        try:
            return await work
        finally:
            await http.close_shared()

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
