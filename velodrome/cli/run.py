"""`velo run` = `ng_run`: every server of the configuration, until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from velodrome.cli.options import ConnectionLimits, HeadOptions, ProfilingOptions, load_options, read_options
from velodrome.cli.streams import say
from velodrome.cli.verb import Verb
from velodrome.errors import InputError
from velodrome.serving.process.supervisor import ServingOptions, Supervisor
from velodrome.settings import Config
from velodrome.settings.values import Amount, Count, FilePath, Text


class RunOptions(HeadOptions, ProfilingOptions, ConnectionLimits):
    """The settings of `velo run`."""

    default_host: Text = Field("127.0.0.1", description="the host of servers whose block has none")
    num_workers: Count = Field(1, description="processes per server; a server's block may override it")
    log_dir: FilePath = Field(Path("results/logs"), description="the folder for one log file per server")
    cors_origins: list[str] = Field([], description="web origins that browsers may call from")
    allowed_hosts: list[str] = Field(
        [], description="host names, besides loopback, that servers without a token accept"
    )
    max_body_bytes: Count = Field(64 * 1024 * 1024, description="the largest request body")
    body_timeout_s: Amount = Field(60.0, description="how long a request's body may take to arrive")
    start_timeout_s: Amount = Field(120.0, description="how long a server may take to become ready")
    health_timeout_s: Amount = Field(30.0, description="how long a server may take to answer a health check")
    health_misses: Count = Field(4, description="missed health checks in a row before a server is restarted")
    drain_s: Amount = Field(10.0, description="how long Ctrl-C waits for requests in flight")
    dev: bool = Field(False, description="restart servers when their files change (or --dev)")


VERB = Verb(
    usage="velo run +config_paths=[a.yaml,b.yaml] [--dev] [+key=value …]      (also: ng_run)",
    about="""\
Start every server of the config, each in its own process, and a head server that knows them. While servers run,
velo collect needs no config. A server that dies is restarted at the same address. Ctrl-C stops them all.""",
    settings={"settings (docs/serving.md)": RunOptions},
    plus=True,
    more="""exit code: 0 stopped by Ctrl-C or SIGTERM, 1 a server did not start, 2 a mistake in the config

examples:
  ng_run "+config_paths=[resources_servers/calculator/configs/calculator.yaml,model.yaml]"
  velo run +config_paths=[my.yaml] --dev
  velo run +config_paths=[my.yaml] +num_workers=4 +head_server.port=11001""",
)


def run(argv: Sequence[str]) -> int:
    """Start, wait, stop."""
    from velodrome.serving.process.limits import raise_file_limit

    words = ["+dev=true" if word == "--dev" else word for word in argv]
    config, settings = load_options(RunOptions, words)
    options = make_options(config)
    if not any("url" not in instance.settings for instance in config.instances.values()):
        raise InputError("there is no server to start: give +config_paths=[…] (see velo run --help)")
    raise_file_limit()
    supervisor = Supervisor(config, options, say)
    if settings.dev:
        from velodrome.serving.process.reload import watch

        def reload() -> Config:
            return load_options(RunOptions, words)[0]

        asyncio.run(supervisor.run(while_up=lambda up: watch(up, reload, say, Path.cwd())))
    else:
        asyncio.run(supervisor.run())
    if options.profiling:
        say(f"profiles: {settings.profiling_results_dirpath}/<name>.log")
    return 0


def make_options(config: Config) -> ServingOptions:
    """The settings as the supervisor takes them."""
    import logging

    settings = read_options(RunOptions, config)
    folder = settings.profile_folder()
    return ServingOptions(
        log_dir=settings.log_dir,
        workers=settings.num_workers,
        host=settings.default_host,
        drain_s=settings.drain_s,
        start_timeout_s=settings.start_timeout_s,
        health_timeout_s=settings.health_timeout_s,
        health_misses=settings.health_misses,
        max_body_bytes=settings.max_body_bytes,
        body_timeout_s=settings.body_timeout_s,
        cors_origins=settings.cors_origins,
        allowed_hosts=settings.allowed_hosts,
        connections={"limit": settings.max_connections, "limit_per_host": settings.max_connections_per_host},
        profiling={} if folder is None else {"directory": str(folder), "every_s": settings.profiling_save_every_s},
        verbose=logging.getLogger().isEnabledFor(logging.INFO),
    )
