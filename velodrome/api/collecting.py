"""`collect`, `rollout`, `verify` and `merge`: rollouts from Python, on the same code as the command line.

A call owns what it opens. When it returns, raises or is cancelled, its connections and tasks are closed, and every
rollout that was finished is in the output. A live agent stays the caller's.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson

from velodrome.api.call import public_call
from velodrome.api.reading import named_files
from velodrome.collector.agents import Agents, ConfiguredAgents, LiveAgents, recorded_live
from velodrome.collector.attempt import Kept, attempt
from velodrome.collector.collection import Surface
from velodrome.collector.collection import collect as run_collection
from velodrome.collector.merging import MergeOptions, MergeResult
from velodrome.collector.merging import merge as write_merged
from velodrome.collector.plan import Job
from velodrome.collector.result import Run
from velodrome.collector.settings import DEFAULT_PARALLEL, CollectSettings, VerifySettings
from velodrome.collector.sink import refuse_output
from velodrome.collector.tasks import encoded_task
from velodrome.collector.verify import default_output
from velodrome.collector.verify import verify as run_verification
from velodrome.contracts import Model, as_agent
from velodrome.errors import InputError, RolloutError
from velodrome.records.task import digest, own_id, parse_task
from velodrome.records.views import Rollout
from velodrome.scope import Scope
from velodrome.settings import Config, load
from velodrome.settings.files import find_input, find_inputs, is_pattern
from velodrome.settings.model import Settings

Json = dict[str, Any]
PathLike = str | Path
Tasks = PathLike | Iterable[str | Json] | AsyncIterable[str | Json]

log = logging.getLogger(__name__)


@public_call
async def collect(
    tasks: Tasks,
    agent: Any = None,
    *,
    out: PathLike | None = None,
    config: Config | PathLike | Sequence[PathLike] | None = None,
    limit: int | None = None,
    repeats: int = 1,
    parallel: int | Literal["auto"] = DEFAULT_PARALLEL,
    workers: int | Literal["auto"] = 1,
    executor: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    ray_actors: int | Literal["auto"] = "auto",
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    params: Json | None = None,
    seed: int | None = None,
    only: str | None = None,
    stop_task_when: Literal["solved", "settled"] | None = None,
    defer: bool = False,
    overwrite: bool = False,
    allow_mixed: bool = False,
    max_total_tokens: int | None = None,
    max_wall_s: float | None = None,
    max_failures: float | None = None,
    drain_s: float = 30.0,
    server_wait_s: float = 300.0,
    sync_every_s: float = 1.0,
    model_cache: PathLike | None = None,
    model_cache_mode: Literal["off", "record", "replay", "auto"] = "auto",
    progress: bool = True,
) -> Run:
    """Run tasks x repeats against an agent, in parallel, and keep every rollout.

    `tasks` is a path to a JSONL file or a pattern of several (`shards/*.jsonl`), a list of texts or task dicts, or any
    (async) iterable of them, which is read as the collection goes. `agent` is a live agent, an async function from a
    task to a result, or the name of an agent in `config` (a path, several, or a loaded `Config`). With `out` rollouts
    are appended to that file, and the same call again continues where it stopped; without it they are kept in memory. A
    failed rollout is counted and never raises.
    """
    keywords = locals()
    if isinstance(tasks, Mapping | bytes) or not isinstance(tasks, str | Path | Iterable | AsyncIterable):
        raise InputError(f"tasks: expected a path, a list or an iterable of tasks, not {tasks!r:.80}")
    path = _input(Path(tasks)) if isinstance(tasks, str | Path) else None
    own = {"input": path, "output": out, "agent": agent if isinstance(agent, str) else None}
    settings = CollectSettings.read(_fields(CollectSettings, keywords) | own, "collect")
    if settings.output is not None:
        refuse_output(settings.output, path)
        settings = settings.model_copy(update={"output": settings.output.absolute()})  # an environment may chdir
    async with Scope():
        listed: Any = None if path is not None else tasks
        return await run_collection(settings, _agents(agent, config), listed, Surface(_reporter(progress), progress))


@public_call
async def rollout(task: str | Json, agent: Any, *, verify: bool = True) -> Rollout:
    """One rollout of one task; nothing is written. A rollout that fails raises its `RolloutError`."""
    line = encoded_task(task)
    try:
        row = parse_task(line)
    except ValueError as error:
        raise InputError(f"task: {error}") from None
    agents = _agents(agent, None)
    content = digest(row)
    name = agents.default or ""
    job = Job(f"{own_id(row) or content}/0", 0, 0, name, row, digest=content)
    async with Scope():
        try:
            finished = await attempt(job, agents.connect([name]), verify=verify, raising=True)
        except RolloutError as error:
            if error.place is not None:
                error.args = (f"{error} ({error.place})",)
            raise
    assert isinstance(finished.result, Kept)  # a failure raised
    return Rollout(orjson.loads(finished.result.line))


@public_call
async def verify(
    path: PathLike,
    environment: Any = None,
    *,
    out: PathLike | None = None,
    config: Config | PathLike | Sequence[PathLike] | None = None,
    agent: str | None = None,
    limit: int | None = None,
    parallel: int | Literal["auto"] = DEFAULT_PARALLEL,
    workers: int | Literal["auto"] = 1,
    executor: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    ray_actors: int | Literal["auto"] = "auto",
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    allow_mixed: bool = False,
    max_wall_s: float | None = None,
    max_failures: float | None = None,
    drain_s: float = 30.0,
    server_wait_s: float = 300.0,
    progress: bool = True,
) -> Run:
    """Score a saved file of rollouts, into `out` (`<path>.verified.jsonl` by default).

    `environment` is a live environment, or an agent that has one; without it the environments are those of `config`.
    """
    if not isinstance(path, str | Path) or not Path(path).name:
        raise InputError(f"path: expected the path of a rollouts file, not {path!r:.80}")
    own = {"input": Path(path), "output": default_output(Path(path)) if out is None else out}
    settings = VerifySettings.read(_fields(VerifySettings, locals()) | own, "verify")
    if environment is None and config is None:
        raise InputError("no environment: pass a live one, or config=… with the agents of the rollouts")
    if settings.output is not None:
        refuse_output(settings.output, find_input(Path(path)))
        settings = settings.model_copy(update={"output": settings.output.absolute()})
    live = environment is not None
    scorers: Agents = ConfiguredAgents(_config(config, scoring=True)) if not live else _scorer(environment, agent)
    async with Scope():
        return await run_verification(settings, scorers, Surface(_reporter(progress), progress))


@public_call
def merge(out: PathLike, rollouts: PathLike | Iterable[PathLike], *, allow_mixed: bool = False) -> MergeResult:
    """Write the rollouts of several files as one that `collect` can continue, each key once, with failures and runs.

    The first rollout of a key is taken. Nothing is overwritten, and nothing is written if anything is wrong, such as,
    without `allow_mixed`, rollouts made with different settings. The result counts `rollouts`, those `repeated`,
    `failures` and lines that are `left_out`, which `notes` names.
    """
    values = {"out": out, "files": tuple(named_files(rollouts)), "allow_mixed": allow_mixed}
    return write_merged(MergeOptions.read(values, "merge"))


def recorded(model: Any) -> Model:
    """A model whose answers `collect(…, model_cache=…)` stores and gives again. Make the agent with it.

    Outside such a run it is the model itself.
    """
    return recorded_live(model)


def _input(path: Path) -> Path:
    """The existing file of tasks, or the pattern of several."""
    return find_inputs(path)[0] if not is_pattern(path) else path


def _fields(model: type[Settings], keywords: Json) -> Json:
    """The keywords of a call that are settings."""
    return {name: value for name, value in keywords.items() if name in model.model_fields}


def _agents(agent: Any, config: Any) -> Agents:
    if agent is None or isinstance(agent, str):
        return ConfiguredAgents(_config(config))
    if config is not None:
        raise InputError("config goes with the name of an agent; a live agent has its own settings")
    return LiveAgents(as_agent(agent), name=getattr(agent, "__name__", None))


def _scorer(environment: Any, name: str | None) -> LiveAgents:
    """The agents for the argument of `verify`: an environment, or an agent that has one."""
    if inspect.isclass(environment) or not (hasattr(environment, "score") or hasattr(environment, "run")):
        raise InputError(f"expected an environment, or an agent that has one, not {environment!r:.80}")
    if hasattr(environment, "score"):
        return LiveAgents(None, environment, name=name)
    return LiveAgents(as_agent(environment), name=name)


def _config(config: Any, *, scoring: bool = False) -> Config:
    if isinstance(config, Config):
        return config
    if config is None:
        raise InputError("no agent: pass a live one, or the name of one with config=…")
    paths = [config] if isinstance(config, str | Path) else config
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str | Path) for path in paths):
        raise InputError(f"config: expected the path of a file, several, or a loaded Config, not {config!r:.80}")
    return load([], config_paths=[str(path) for path in paths], scoring=scoring)


def _reporter(progress: bool) -> Any:
    """Notes go to stderr with a progress bar, and to the log without one."""
    return (lambda line: sys.stderr.write(f"{line}\n")) if progress else log.info
