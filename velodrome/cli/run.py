"""`velo run` = `ng_run`: every server of the configuration, until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from velodrome.cli.options import HeadOptions, load_options
from velodrome.cli.streams import say
from velodrome.cli.verb import Verb
from velodrome.errors import InputError
from velodrome.serving.process.options import ServingOptions
from velodrome.serving.process.supervisor import Supervisor


class RunOptions(ServingOptions, HeadOptions):
    """The settings of `velo run`."""

    dev: bool = Field(
        False,
        description="restart servers when their code changes; same as --dev",
    )


VERB = Verb(
    usage="velo run CONFIG … [--dev] [--setting VALUE …]\n"
    "velo run +config_paths=[a.yaml,b.yaml] [+key=value …]      (also: ng_run)",
    about="""\
Start every server of the config, each in its own process, and a head server that knows them. While servers run,
velo collect needs no config. A server that dies is restarted at the same address. Ctrl-C stops them all. CONFIG is a
name (velo envs, local_model, openai_model) or a .yaml file.""",
    settings={"settings (docs/serving.md)": RunOptions},
    plus=True,
    more="""exit code: 0 stopped by Ctrl-C or SIGTERM, 1 a server did not start, 2 a mistake in the config

examples:
  velo run calculator local_model
  velo run my.yaml --dev
  ng_run +config_paths=[my_environment.yaml,my_model.yaml]
  velo run +config_paths=[my.yaml] +num_workers=4 +head_server.port=11001""",
)


def run(argv: Sequence[str]) -> int:
    """Start, wait, stop."""
    from velodrome.serving.process.limits import raise_file_limit

    config, settings = load_options(RunOptions, argv)
    if not any("url" not in instance.settings for instance in config.instances.values()):
        raise InputError(
            "there is no server to start: name configs, as in velo run calculator local_model (see velo run --help)"
        )
    raise_file_limit()
    supervisor = Supervisor(config, settings, say)
    if settings.dev:
        from velodrome.serving.process.reload import watch

        asyncio.run(supervisor.run(while_up=lambda up: watch(up, say, Path.cwd())))
    else:
        asyncio.run(supervisor.run())
    if settings.profiling_enabled:
        say(f"profiles: {settings.profiling_results_dirpath}/<name>.log")
    say("stopped")
    return 0
