"""How servers are run: the settings that `velo run`, the supervisor and every worker share."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from velodrome.settings.model import Settings
from velodrome.settings.values import Amount, Count, FilePath, Text


class ConnectionLimits(Settings):
    """How many connections the HTTP client opens."""

    max_connections: Count = Field(
        102400, alias="global_aiohttp_connector_limit", description="the most HTTP connections"
    )
    max_connections_per_host: Count = Field(
        1024, alias="global_aiohttp_connector_limit_per_host", description="the most HTTP connections to one server"
    )


class ProfilingOptions(Settings):
    """Profiles of every function that a process runs."""

    profiling_enabled: bool = Field(False, description="measure every function while it runs")
    profiling_results_dirpath: FilePath | None = Field(
        None, description="the folder for profiles; required with profiling_enabled"
    )
    profiling_clock: Literal["cpu", "wall"] = Field(
        "cpu", description="cpu for code that computes, wall for code that waits"
    )
    profiling_save_every_s: Amount = Field(5.0, description="seconds between two saves of a profile")

    def profile_folder(self) -> Path | None:
        """The folder for profiles, ready for writing; None if profiling is off."""
        from velodrome.timing.profiles import place

        return place(self.profiling_enabled, self.profiling_results_dirpath)


class ServingOptions(ProfilingOptions, ConnectionLimits):
    """The servers of one run."""

    default_host: Text = Field("127.0.0.1", description="the host of servers whose block has none")
    num_workers: Count = Field(1, description="processes per server; a server's block may override it")
    log_dir: FilePath = Field(Path("results/logs"), description="the folder for one log file per server")
    cors_origins: list[str] = Field([], description="web origins that browsers may call from; none by default")
    allowed_hosts: list[str] = Field(
        [], description="host names, besides loopback, that servers without a token accept"
    )
    max_body_bytes: Count = Field(64 * 1024 * 1024, description="the largest request body")
    body_timeout_s: Amount = Field(60.0, description="how long a request's body may take to arrive")
    session_ttl_s: Amount = Field(21600.0, description="how long a session of an environment may be idle")
    max_sessions: Count = Field(10_000, description="the most open sessions of one worker of an environment")
    start_timeout_s: Amount = Field(120.0, description="how long a server may take to become ready")
    health_timeout_s: Amount = Field(30.0, description="how long a server may take to answer a health check")
    health_misses: Count = Field(4, description="missed health checks in a row before a server is restarted")
    drain_s: Amount = Field(10.0, description="how long Ctrl-C waits for requests in flight")
