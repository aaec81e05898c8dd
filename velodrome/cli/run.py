"""`velo run` = `ng_run`: every server of the configuration, until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from velodrome.cli.collect import LIMITS, say
from velodrome.cli.settings import PROFILING, Setting, profile_place, read_settings, settings_help
from velodrome.errors import InputError
from velodrome.serving.process.supervisor import Options, Supervisor
from velodrome.settings import Config, load

SETTINGS = (
    Setting("head_server", "object", {}, "{host, port} of the head server [127.0.0.1, 11000]"),
    Setting("default_host", "text", "127.0.0.1", "where servers listen whose block has no host"),
    Setting("num_workers", "count", 1, "processes a server; its block may say otherwise"),
    Setting("log_dir", "path", Path("results/logs"), "one log file a server goes here"),
    Setting("server_token", "text", None, "the token callers must send; or VELODROME_TOKEN"),
    Setting("cors_origins", "texts", [], "web origins that browsers may call from"),
    Setting("allowed_hosts", "texts", [], "names, beside loopback's, that servers without a token answer to"),
    Setting("max_body_bytes", "count", 64 * 1024 * 1024, "the largest request"),
    Setting("body_timeout_s", "number", 60.0, "how long a request's body may take to arrive"),
    Setting("start_timeout_s", "number", 120.0, "how long a server may take to be ready"),
    Setting("health_timeout_s", "number", 30.0, "how long a running server may take to answer a health check"),
    Setting("health_misses", "count", 4, "health checks missed in a row before it is started again"),
    Setting("drain_s", "number", 10.0, "how long Ctrl-C waits for what is in flight"),
    Setting("dev", "flag", False, "start servers anew when their files change (or --dev)"),
    *PROFILING,
    *LIMITS,
)
HELP = f"""usage: velo run +config_paths=[a.yaml,b.yaml] [--dev] [+key=value …]      (also: ng_run)

Start every server of the config, each in its own process, and a head server that knows them. With servers running,
velo collect needs no config. A server that dies is started again under the same address. Ctrl-C ends them all.

settings (docs/serving.md):
{settings_help(SETTINGS)}

exit code: 0 stopped by Ctrl-C or SIGTERM, 1 a server did not start, 2 a mistake in the config

examples:
  ng_run "+config_paths=[resources_servers/calculator/configs/calculator.yaml,model.yaml]"
  velo run +config_paths=[my.yaml] --dev
  velo run +config_paths=[my.yaml] +num_workers=4 +head_server.port=11001"""


def run(argv: Sequence[str]) -> int:
    """Start, wait, stop."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    from velodrome.serving.process.limits import raise_file_limit

    words = ["+dev=true" if word == "--dev" else word for word in argv]
    reload = partial(load, words, known=[setting.name for setting in SETTINGS])
    config = reload()
    given = read_settings(config.settings, SETTINGS)
    options = make_options(config)
    if not any("url" not in instance.settings for instance in config.instances.values()):
        raise InputError("there is no server to start: give +config_paths=[…] (see velo run --help)")
    raise_file_limit()
    supervisor = Supervisor(config, options, say)
    if given["dev"]:
        from velodrome.serving.process.reload import watch

        asyncio.run(supervisor.run(while_up=lambda up: watch(up, reload, say, Path.cwd())))
    else:
        asyncio.run(supervisor.run())
    if options.profiling:
        say(f"profiles: {given['profiling_results_dirpath']}/<name>.log")
    return 0


def make_options(config: Config) -> Options:
    """The settings under their inner names."""
    import logging

    given = read_settings(config.settings, SETTINGS)
    place = profile_place(config.settings)
    return Options(
        log_dir=given["log_dir"],
        workers=given["num_workers"],
        host=given["default_host"],
        drain_s=given["drain_s"],
        start_timeout_s=given["start_timeout_s"],
        health_timeout_s=given["health_timeout_s"],
        health_misses=given["health_misses"],
        max_body_bytes=given["max_body_bytes"],
        body_timeout_s=given["body_timeout_s"],
        cors_origins=given["cors_origins"],
        allowed_hosts=given["allowed_hosts"],
        connections={
            "limit": given["global_aiohttp_connector_limit"],
            "limit_per_host": given["global_aiohttp_connector_limit_per_host"],
        },
        profiling={} if place is None else {"directory": str(place), "every_s": given["profiling_save_every_s"]},
        verbose=logging.getLogger().isEnabledFor(logging.INFO),
    )
