"""`velo profile --load-test`: servers with profiling, rollouts from them, and what both say, in one command.

The servers are found by their own supervisor's addresses, never through a head that happens to run here. However it
ends, none of them is left.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from velodrome.cli import collect as collecting
from velodrome.cli import run as serving
from velodrome.cli.options import read_options
from velodrome.cli.page import page_path, patient_profile, write_page
from velodrome.cli.streams import say
from velodrome.cli.tables import print_lines, print_text
from velodrome.cli.watching import watching
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings
from velodrome.collector.watch.watch import Watcher
from velodrome.errors import InputError
from velodrome.serving.connect import Servers
from velodrome.serving.process.channel import HEAD
from velodrome.serving.process.listen import LOOPBACK, server_token
from velodrome.serving.process.supervisor import Supervisor
from velodrome.settings import Config, load
from velodrome.settings.model import setting_names
from velodrome.settings.names import RESOURCES
from velodrome.timing.invisible import printed_json
from velodrome.timing.profiles import Profiles

Json = dict[str, Any]

INTERRUPTED = 130


def load_test(words: Sequence[str], *, as_json: bool, page: str | None, top: int) -> int:
    """Start, collect, stop, print. The exit code is the collection's."""
    config, folder = read_config(words)
    options, output = collecting.with_files(read_options(collecting.CollectOptions, config))
    if output.exists() and not options.overwrite:
        raise InputError(
            f"{output}: a load test makes its rollouts anew; +overwrite=true replaces these, "
            "another +output_jsonl_fpath keeps them"
        )
    for place in (folder, output.parent):
        make_folder(place)
    target = None if page is None else page_path(page, output)
    collecting.use_limits(options)
    own = options.model_copy(update={"profiling_enabled": False})  # of this process; its servers are profiled
    with watching(own, output, say) as watchers:
        outcome = collecting.run_async(served(config, options, watchers))
    if outcome is None:
        return INTERRUPTED
    say(f"{outcome.summary()}  ->  {output}")
    for reason, count in list(outcome.reasons.items())[: collecting.SHOWN_REASONS]:
        say(f"  {count} x {reason}")
    if not output.exists():
        return outcome.exit_code
    profile = patient_profile([output])
    if target is not None:
        write_page(profile, target, output.name)
    show(profile, config, folder, as_json=as_json, top=top)
    return outcome.exit_code


def read_config(words: Sequence[str]) -> tuple[Config, Path]:
    """The configuration with profiling on and a head of its own, and the folder that results go to."""
    known = setting_names(collecting.CollectOptions) | setting_names(serving.RunOptions)
    config = load(words, known=known)
    if not any("url" not in instance.settings for instance in config.instances.values()):
        raise InputError("there is no server to start: give +config_paths=[…] (see velo profile --help)")
    own = config.settings
    folder = own.get("profiling_results_dirpath") or f"results/profiling/{time.strftime('%Y%m%d-%H%M%S')}"
    settings: Json = {
        **own,
        "profiling_enabled": True,
        "profiling_results_dirpath": str(folder),
        "output_jsonl_fpath": own.get("output_jsonl_fpath") or str(Path(str(folder)) / "rollouts.jsonl"),
        "log_dir": own.get("log_dir") or str(Path(str(folder)) / "logs"),
    }
    if not any(word.lstrip("+").startswith("head_server") for word in words):
        settings["head_server"] = {"host": LOOPBACK, "port": 0}  # a free one: env.yaml's may be in use
    return replace(config, settings=settings), Path(str(folder)).expanduser()


def make_folder(path: Path) -> None:
    """A folder for results."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give another folder for the results") from error


async def served(config: Config, options: CollectSettings, watchers: Sequence[Watcher]) -> Run | None:
    """The collection, against servers that are there as long as it takes; None if they were stopped before."""
    work: list[asyncio.Task[Run]] = []

    async def while_up(up: Supervisor) -> None:
        urls = {name: server.url for name, server in up.servers.items() if server.instance.kind != HEAD}
        servers = Servers(urls, server_token(config.settings))
        task = asyncio.create_task(collecting.collect(options, config, servers, watchers))
        work.append(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):  # the collection had them meanwhile
                loop.add_signal_handler(number, up.interrupt)
            up.stop()

    await Supervisor(config, read_options(serving.RunOptions, config), say).run(while_up=while_up)
    if not work:
        return None
    await asyncio.wait(work)
    return None if work[0].cancelled() else work[0].result()


def show(profile: Json, config: Config, folder: Path, *, as_json: bool, top: int) -> None:
    """Each environment's tables of calls, the tree and the verdict; as JSON the profile with the tables' paths."""
    names = [name for name, instance in config.instances.items() if instance.kind == RESOURCES]
    logs = {
        name: [path for ending in (".log", ".wall.log") if (path := folder / f"{stem}{ending}").is_file()]
        for name in names
        if (stem := Profiles(folder, name).name)
    }
    if as_json:
        report = {**profile, "servers": {name: [str(path) for path in paths] for name, paths in logs.items()}}
        print_lines(printed_json(report))
        return
    from velodrome.profiling.profile_text import profile_tree, verdict_text

    for name, paths in logs.items():
        for path in paths:
            clock = "wall time" if path.name.endswith(".wall.log") else "CPU time"
            print(f"{name}, {clock} in seconds ({path})\n{calls_text(path, top)}\n")
    print_text(f"{profile_tree(profile)}\n\n{verdict_text(profile['verdict'])}")


def calls_text(log: Path, top: int) -> str:
    """The head and the first rows of a table of calls: the project's own functions, the costliest first."""
    own = log.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    more = len(own) - 1 - top
    return "\n".join([*own[: top + 1], *([f"and {more} more"] if more > 0 else [])])
