"""The settings of a collection and of a scoring pass. The command line, YAML and Python use the same fields."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from velodrome.settings.model import Settings
from velodrome.settings.values import Amount, Count, FilePath, Parallel, Repeats, Seed, Text, Workers

Json = dict[str, Any]

DEFAULT_PARALLEL = 16
RecordingMode = Literal["off", "record", "replay", "auto"]


class SharedSettings(Settings):
    """The settings that collecting and scoring share."""

    input: FilePath | None = Field(None, alias="input_jsonl_fpath", description="the tasks: .jsonl or .jsonl.zst")
    output: FilePath | None = Field(None, alias="output_jsonl_fpath", description="where rollouts go")
    agent: Text | None = Field(None, alias="agent_name", description="the agent")
    limit: Count | None = Field(None, description="how many tasks, from the start of the input; all by default")
    parallel: Parallel = Field(
        DEFAULT_PARALLEL, alias="num_samples_in_parallel", description="rollouts in flight, or auto"
    )
    seed: Seed | None = Field(None, description="model calls get seeds made of this, the rollout's key and the turn")
    workers: Workers = Field(
        1, alias="num_workers", description="worker processes; auto is one per core, up to the rollouts in flight"
    )
    executor: Literal["local", "ray"] = Field(
        "local", description="where rollouts run: processes of this machine, or actors of a Ray cluster"
    )
    ray_address: Text | None = Field(None, description="host:port of the Ray cluster; that of this machine by default")
    ray_actors: Parallel = Field("auto", description="actors on the Ray cluster; auto is one per CPU that it has")
    requests_per_minute: Count | None = Field(None, description="the most model calls per minute, of all workers")
    tokens_per_minute: Count | None = Field(None, description="the most tokens of model calls per minute")
    overwrite: bool = Field(False, description="empty the output (rollouts and failures) before starting")
    allow_mixed: bool = Field(False, description="add to rollouts made with other settings")
    max_wall_s: Amount | None = Field(None, description="a budget: stop after this many seconds")
    max_failures: Amount | None = Field(
        None, description="a budget: stop after more failures than this; below 1, a share"
    )
    drain_s: Amount = Field(30.0, description="how long Ctrl-C or a budget waits for rollouts in flight")
    sigterm_drain_s: Amount = Field(
        20.0, description="how long SIGTERM waits for them; Slurm and Kubernetes kill after 30 s"
    )
    server_wait_s: Amount = Field(300.0, description="how long to wait for an unreachable server")


class CollectSettings(SharedSettings):
    """The settings of `velo collect` and `velodrome.collect`."""

    input: FilePath | None = Field(
        None,
        alias="input_jsonl_fpath",
        description="the tasks: .jsonl or .jsonl.zst; 'shards/*.jsonl' is several files",
    )
    output: FilePath | None = Field(
        None,
        alias="output_jsonl_fpath",
        description="where rollouts go; <input>.rollouts.jsonl in this folder by default",
    )
    agent: Text | None = Field(
        None, alias="agent_name", description="the agent; each row's agent_ref by default, else the only agent"
    )
    repeats: Repeats = Field(1, alias="num_repeats", description="rollouts per task")
    params: Json = Field({}, alias="responses_create_params", description="overrides for every task (.temperature=0.7)")
    only: Text | None = Field(None, description="run the rollout with this key alone, such as 9f31c2a0/0")
    stop_task_when: Literal["solved", "settled"] | None = Field(
        None,
        description="no more repeats of a task once one has reward 1.0 (solved), or two differ in reward (settled)",
    )
    defer: bool = Field(False, alias="defer_verification", description="leave the reward for velo verify")
    max_total_tokens: Count | None = Field(None, description="a budget: stop after this many tokens")
    sync_every_s: Amount = Field(1.0, description="how often the output is synced to disk")
    model_cache: FilePath | None = Field(None, description="a folder in which the models' answers are stored")
    model_cache_mode: RecordingMode = Field(
        "auto",
        description="auto gives a stored answer and asks for one that is missing; replay never asks, record always",
    )


class VerifySettings(SharedSettings):
    """The settings of `velo verify` and `velodrome.verify`."""

    input: FilePath | None = Field(None, alias="input_jsonl_fpath", description="the rollouts to score")
    output: FilePath | None = Field(
        None,
        alias="output_jsonl_fpath",
        description="where scored rollouts go; <input>.verified.jsonl by default",
    )
    agent: Text | None = Field(
        None,
        alias="agent_name",
        description="score with this agent's environment; the one each rollout names by default",
    )
    limit: Count | None = Field(None, description="how many rollouts; all by default")
    allow_mixed: bool = Field(False, description="add to scores made with other settings")
