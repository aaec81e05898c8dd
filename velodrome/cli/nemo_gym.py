"""The commands that NeMo Gym's users type, as commands of ours.

An argument of theirs becomes one of ours. One that cannot be honoured is refused, or said to have no effect; it is
never dropped in silence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from velodrome.errors import InputError
from velodrome.settings.names import AGENTS, MODELS, RESOURCES, hint

Words = list[str]
SEE = "docs/from-nemo-gym.md#commands"


@dataclass(frozen=True)
class OtherCommand:
    """One of their commands: what it opens, its arguments (none: those of ours), and how they are translated.

    Words that begin like one of `passes` go to ours as they are.
    """

    opens: str
    does: str
    takes: tuple[str, ...] | None
    translate: Callable[[Mapping[str, str], Words], Words]
    passes: tuple[str, ...] = ()


def opened(name: str, words: Sequence[str]) -> Words:
    """The words after `velo` that a command of theirs stands for; none if it only prints."""
    command = COMMANDS.get(name)
    if command is None:
        raise InputError(f"no command {name}{hint(name, COMMANDS)} (ng_help lists them)")
    if name != "ng_help" and {"-h", "--help", "+help=true", "+h=true"} & set(words):
        print(f"{name} opens velo {command.opens} (see {SEE})\n")
        return [command.opens.split()[0], "--help"]
    if command.takes is None:
        return command.translate({}, list(words))
    values, rest = _split(name, command, words)
    return command.translate(values, rest)


def _split(name: str, command: OtherCommand, words: Sequence[str]) -> tuple[dict[str, str], Words]:
    """Their arguments by name, and the words that go to ours as they are."""
    values: dict[str, str] = {}
    rest, problems = [], []
    for word in words:
        key, equals, value = word.lstrip("+").partition("=")
        if not equals:
            problems.append(f"{name}: {word!r:.60} is not a setting{_way_out(name, word)}")
        elif key in (command.takes or ()):
            values[key] = value.strip("\"'")
        elif key.startswith(command.passes):
            rest.append(word)
        else:
            near = hint(key, command.takes or ())
            takes = ", ".join(command.takes or ())
            problems.append(f"{name}: +{key} is not one of its arguments ({takes}){near} (see {SEE})")
    if problems:
        raise InputError(*problems)
    return values, rest


def _way_out(name: str, word: str) -> str:
    """What to type for a word that is no setting: the name of an environment is one, in a command about one."""
    command = COMMANDS[name]
    if "entrypoint" in (command.takes or ()) and word.replace("_", "").isalnum():
        return f"; write {name} +entrypoint={RESOURCES}/{word}, or velo {command.opens} {word}"
    return ": +name=value"


def _is_true(name: str, values: Mapping[str, str], key: str) -> bool:
    value = values.get(key, "false").lower()
    if value not in ("true", "false"):
        raise InputError(f"{name}: +{key} is true or false, not {value!r:.40}")
    return value == "true"


def _needed(name: str, values: Mapping[str, str], key: str, example: str) -> str:
    if not values.get(key):
        raise InputError(f"{name}: +{key} is required, as in +{key}={example}")
    return values[key]


def _folder(name: str, values: Mapping[str, str]) -> str:
    """The environment that `+entrypoint=resources_servers/NAME` means."""
    path = PurePosixPath(_needed(name, values, "entrypoint", "resources_servers/my_environment"))
    kind, *below = path.parts
    if path.is_absolute() or len(path.parts) != 2 or ".." in path.parts:
        raise InputError(f"{name}: +entrypoint is a path of two parts, resources_servers/NAME, not {str(path)!r:.80}")
    if kind in (AGENTS, MODELS):
        raise InputError(f"{name}: {path}: only environments can be examined; run the folder's own tests with pytest")
    if kind != RESOURCES:
        raise InputError(f"{name}: +entrypoint begins with resources_servers/, not {kind + '/'!r:.40}")
    return below[0]


def _note(text: str) -> None:
    print(f"velo: {text}", file=sys.stderr)


def _test(values: Mapping[str, str], rest: Words) -> Words:
    if "should_validate_data" in values and not _is_true("ng_test", values, "should_validate_data"):
        _note("ng_test: the example data is always checked; +should_validate_data=false has no effect")
    return ["test", _folder("ng_test", values), *rest]


def _init(values: Mapping[str, str], rest: Words) -> Words:
    return ["init", _folder("ng_init_resources_server", values), *rest]


def _prepare_data(values: Mapping[str, str], rest: Words) -> Words:
    name = "ng_prepare_data"
    folder = _needed(name, values, "output_dirpath", "data/my_environment")
    mode = _needed(name, values, "mode", "example_validation")
    types = {"train_preparation": "train,validation,benchmark", "example_validation": "example"}
    if mode not in types:
        raise InputError(f"{name}: +mode is {' or '.join(types)}, not {mode!r:.40}")
    if _is_true(name, values, "should_download") or "data_source" in values:
        _note(
            f"{name}: nothing is downloaded here; +should_download and +data_source have no effect"
            " (a data set of Hugging Face: velo data prepare hf:NAME)"
        )
    if _is_true(name, values, "overwrite_metrics_conflicts"):
        _note(f"{name}: no metrics files are written; +overwrite_metrics_conflicts has no effect")
    return ["data", "collate", "--to", folder, "--types", types[mode], "--overwrite", *rest]


def _status(values: Mapping[str, str], rest: Words) -> Words:
    return ["status", *(["--json"] if _is_true("ng_status", values, "json") else []), *rest]


def _reward_profile(values: Mapping[str, str], rest: Words) -> Words:
    name = "ng_reward_profile"
    rollouts = _needed(name, values, "rollouts_jsonl_fpath", "rollouts.jsonl")
    if "materialized_inputs_jsonl_fpath" in values:
        _note(f"{name}: a rollout has its task with it; +materialized_inputs_jsonl_fpath is not read")
    if "allow_partial_rollouts" in values and not _is_true(name, values, "allow_partial_rollouts"):
        _note(f"{name}: tasks without a rollout are never an error here; +allow_partial_rollouts=false has no effect")
    return ["metrics", rollouts, "--by", "task", *rest]


def _help(_: Mapping[str, str], __: Words) -> Words:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  velo {each.opens:<13} {each.does}" for name, each in COMMANDS.items()]
    print("\n".join(["Commands of NeMo Gym, and what each opens:", "", *lines, "", f"{SEE} has their arguments."]))
    return []


def _same(verb: str) -> Callable[[Mapping[str, str], Words], Words]:
    return lambda _, words: [verb, *words]


COMMANDS = {
    "ng_run": OtherCommand("run", "start the servers of a config", None, _same("run")),
    "ng_collect_rollouts": OtherCommand("collect", "run tasks and keep the rollouts", None, _same("collect")),
    "ng_viewer": OtherCommand("view", "look at rollouts", None, _same("view")),
    "ng_init_resources_server": OtherCommand("init", "a new environment's folder", ("entrypoint",), _init),
    "ng_test": OtherCommand("test", "examine an environment", ("entrypoint", "should_validate_data"), _test),
    "ng_prepare_data": OtherCommand(
        "data collate",
        "the data sets of a config, checked, one file per type",
        ("output_dirpath", "mode", "should_download", "data_source", "overwrite_metrics_conflicts"),
        _prepare_data,
        passes=("config_paths",),
    ),
    "ng_status": OtherCommand("status", "the servers that run", ("json",), _status, passes=("head_server.",)),
    "ng_dump_config": OtherCommand("config", "the resolved config, secrets masked", None, _same("config")),
    "ng_reward_profile": OtherCommand(
        "metrics",
        "the rewards of each task",
        ("rollouts_jsonl_fpath", "materialized_inputs_jsonl_fpath", "allow_partial_rollouts"),
        _reward_profile,
    ),
    "ng_help": OtherCommand("--help", "this list", None, _help),
}
