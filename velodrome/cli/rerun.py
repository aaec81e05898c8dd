"""`velo rerun`: one rollout again, with the same task, agent and sampling, beside the old one."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from pydantic import Field

from velodrome.cli.collect import run_async
from velodrome.cli.options import ServerOptions, read_options
from velodrome.cli.plain import read_plain
from velodrome.cli.streams import say
from velodrome.cli.tables import ink, next_step, pairs, print_result, without_json
from velodrome.cli.verb import Verb
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.attempt import Attempt, attempt
from velodrome.collector.plan import Job
from velodrome.collector.planning.rerun import OldRollout, masked_places, read_old, save_rerun, with_secrets
from velodrome.collector.runfile import RunFile, make_recipe
from velodrome.collector.sink import refuse_output
from velodrome.errors import InputError
from velodrome.records.other_files import refuse_other_file
from velodrome.records.rollout import beside
from velodrome.serving.connect import Components, Servers, unknown
from velodrome.settings import Config, load
from velodrome.settings.files import file_problem
from velodrome.settings.model import setting_names
from velodrome.settings.values import FilePath
from velodrome.timing.invisible import escaped

Json = dict[str, Any]

FAILED = 3
_LONGEST_END = 300  # characters of an answer


class RerunOptions(ServerOptions):
    """The settings of `velo rerun`."""

    output: FilePath | None = Field(
        None, alias="output_jsonl_fpath", description="where the new rollout goes; <FILE>.rerun.jsonl by default"
    )
    params: Json = Field({}, alias="responses_create_params", description="other sampling (.temperature=0)")


VERB = Verb(
    usage="velo rerun FILE KEY [-o OUT] [+key=value …]",
    about="""\
Run one rollout again: the same task, agent, sampling and seed, by the run file beside it. The new rollout is added to
a file of its own, and both results are printed. KEY may be that of a failed attempt. The run file says which code runs
and which server gets your keys, so run only files again that you trust.""",
    settings={"settings": RerunOptions},
    plus=True,
    more="""\
  +config_paths=[a.yaml,b.yaml]  other configs than the one on record, such as one with its secrets

exit code: 0 kept, 2 a mistake in the input or config, 3 it failed this time

examples:
  velo rerun rollouts.jsonl 9f31c2a0/0
  velo rerun rollouts.jsonl 9f31c2a0/0 -o again.jsonl +responses_create_params.temperature=0
  velo view rollouts.jsonl rollouts.rerun.jsonl""",
)


def run(argv: Sequence[str]) -> int:
    """Run it, keep it, print both."""
    words, as_json = without_json(argv)
    file, key, rest = _file_and_key(words)
    old = read_old(file, key)
    config, options = _configured(old, rest)
    out = options.output or beside(file, "rerun.jsonl")
    refuse_output(out, file)
    config, servers = _found(config, options, old)
    agents = ConfiguredAgents(config, servers)
    job = old.job(options.params)
    if job.agent not in agents.names:
        raise InputError(f"{file}: {unknown('agent', job.agent, list(agents.names))}")
    _refuse_masked(old, config, servers, job.agent)
    if agents.note:
        say(agents.note)
    new, kept = run_async(_run(old, job, agents, out, options))
    _print(old, new, kept, out, as_json=as_json)
    return 0 if kept else FAILED


def _file_and_key(words: Sequence[str]) -> tuple[Path, str, list[str]]:
    plain: list[str] = []
    rest: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word[:1] in ("+", "~"):
            rest.append(word)
        elif word.startswith("-"):
            rest.append(word)
            if "=" not in word and word != "--embedded" and waiting:
                rest.append(waiting.pop(0))
        else:
            plain.append(word)
    if len(plain) != 2:
        raise InputError(
            "give a file and the key of a rollout: velo rerun rollouts.jsonl 9f31c2a0/0 (see velo rerun --help)"
        )
    file = Path(plain[0]).expanduser()
    if (problem := file_problem(file)) is not None:
        raise InputError(problem)
    refuse_other_file(file)
    return file, plain[1], rest


def _configured(old: OldRollout, words: Sequence[str]) -> tuple[Config, RerunOptions]:
    """The configuration on record, with what env.yaml and the command line add to it."""
    settings = old.settings
    kept = {"head_server": settings["head_server"]} if isinstance(settings.get("head_server"), dict) else {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / beside(old.file, "run.yaml").name
        path.write_bytes(orjson.dumps({**kept, **with_secrets(old.blocks, settings)}))
        read = read_plain(words, RerunOptions)
        given = bool(read.configs) or any(str(word).lstrip("+").startswith("config_paths=") for word in read.words)
        config = load(read.words, known=setting_names(RerunOptions), config_paths=None if given else [str(path)])
    return config, read_options(RerunOptions, config)


def _found(config: Config, options: RerunOptions, old: OldRollout) -> tuple[Config, Servers]:
    from velodrome.serving.discovery import find

    config, servers = find(config, embedded=options.embedded)
    if old.served and not servers.urls and not options.embedded:
        raise InputError(
            f"{old.file}: {old.meta['key']!r} was made by servers, and none run now: start them with velo run, or give "
            "+embedded=true to run their components in this process"
        )
    return config, servers


def _refuse_masked(old: OldRollout, config: Config, servers: Servers, agent: str) -> None:
    """A secret that is masked on record must come from elsewhere, unless a server has it."""
    components = Components(config, servers=servers)
    waiting, places = [agent], []
    while waiting:
        instance = config.instances[waiting.pop()]
        if not components.is_elsewhere(instance):
            block = {instance.name: {instance.kind: {instance.implementation: instance.settings}}}
            places += masked_places(block)
            waiting += [name for name in instance.references().values() if name in config.instances]
    if places:
        run_file = beside(old.file, "run.json").name
        raise InputError(
            *(
                f"{place}: a secret, which {run_file} has masked; give +{place}=…, or set it in env.yaml"
                for place in places
            )
        )


async def _run(
    old: OldRollout, job: Job, agents: ConfiguredAgents, out: Path, options: RerunOptions
) -> tuple[Json, bool]:
    deferred = bool(old.recipe.get("defer_verification"))
    try:
        live = agents.connect([job.agent])
        recipe = make_recipe(agents.recipe(live), options.params, deferred=deferred, seed=job.seed)
        made: Attempt = await attempt(job, live, verify=not deferred)
    finally:
        await agents.aclose()
    row = save_rerun(out, old, made)
    runfile = RunFile(out)
    inputs = {"input": str(old.file), "limit": None, "repeats": 1, "requested": 1}
    kept = made.line is not None
    entry = runfile.begin(recipe, inputs, agents.config)
    entry.update(finished_at=round(time.time(), 3), kept=int(kept), failed=int(not kept), left=0, stopped=None)
    runfile.save()
    return row, kept


def _print(old: OldRollout, new: Json, kept: bool, out: Path, *, as_json: bool) -> None:
    sides = {"before": _short(old.row, old.failed), "again": _short(new, not kept)}
    then = shlex.join(["velo", "view", str(old.file), str(out)])

    def drawn() -> str:
        blocks = []
        for name, side in sides.items():
            rows = pairs((key, _cell(value)) for key, value in side.items() if key != "key")
            blocks.append(f"{ink(name, 'bold')} {escaped(side['key'])}\n{rows}")
        return "\n\n".join([*blocks, next_step(then)])

    print_result({**sides, "to": str(out), "next": then}, drawn, as_json=as_json)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else escaped(str(value))


def _short(row: Json, failed: bool) -> Json:
    """What a person compares: the reward and the end of the answer, or why it failed."""
    if failed:
        return {"key": row["key"], "failed": f"{row.get('boundary')}: {row.get('error')}"}
    answer = str((row.get("response") or {}).get("content") or "").strip()
    end = answer if len(answer) <= _LONGEST_END else f"…{answer[-_LONGEST_END:]}"
    return {"key": row["meta"]["key"], "reward": row.get("reward"), "answer": end}
