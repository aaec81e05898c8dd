"""The short form of a command line: `velo collect calculator local_model tasks.jsonl -n 4 -o rollouts.jsonl`.

A name is a config of this folder, of an installed environment or of the package. A .yaml file is a config, a .jsonl
file the input, and an option is the short form of a setting. Each becomes the same change as `+name=value`, so both
forms can be mixed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from velodrome.cli.streams import say
from velodrome.cli.verb import SHORT, is_option, plain_kind
from velodrome.errors import InputError
from velodrome.settings.files import PACKAGE, configs_of, find_file, in_package, is_pattern
from velodrome.settings.installed import installed_names, installed_place
from velodrome.settings.model import Settings, field_names, ordered_fields
from velodrome.settings.names import KINDS, MODELS, RESOURCES, hint
from velodrome.settings.overrides import Change, Word

_CONFIGS = (".yaml", ".yml")
_ROWS = (".jsonl", ".jsonl.zst")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


@dataclass
class PlainWords:
    """A command line with settings only, and the example tasks of its environments."""

    words: list[Word] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    @cached_property
    def examples(self) -> list[str]:
        """The example tasks of the environments on the command line."""
        folders = dict.fromkeys(_folder(path) for path in self.configs)
        paths = [f"{folder}/data/example.jsonl" for folder in folders if folder]
        return [path for path in paths if find_file(path, Path.cwd()) is not None]


def option_names(model: type[Settings]) -> dict[str, tuple[str, FieldInfo]]:
    """The options of a model, each with its setting: `--repeats` is `num_repeats`."""
    options: dict[str, tuple[str, FieldInfo]] = {}
    for name, each in ordered_fields(model).items():
        if is_option(each):
            names = field_names(name, each)
            options |= {f"--{typed.replace('_', '-')}": (names[0], each) for typed in (name, *names)}
            options |= {short: (names[0], each) for short, long in SHORT.items() if long == name}
    return options


def read_plain(words: Sequence[str], model: type[Settings] = Settings) -> PlainWords:
    """Convert names, files and options to settings. Other words are unchanged."""
    options = option_names(model)
    command = PlainWords()
    takes_input = "input" in model.model_fields
    problems: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word.startswith("-"):
            _read_option(word, remaining, options, command, problems)
        elif word[:1] in ("+", "~", "") or "=" in word:
            command.words.append(word)
        elif takes_input and _is_input(word):
            command.inputs.append(word)
        else:
            _read_name(word, command, problems)
    if len(command.inputs) > 1:
        several = ", ".join(command.inputs[:3])
        problems.append(f"{several}: one input, please; several files are a pattern in quotes: 'shards/*.jsonl'")
    if problems:
        raise InputError(*problems)
    command.words += [Change(("input_jsonl_fpath",), path) for path in command.inputs]
    if command.configs:
        command.words.append(Change(("config_paths",), command.configs, append=True))
    return command


def _read_option(
    word: str,
    remaining: list[str],
    options: Mapping[str, tuple[str, FieldInfo]],
    command: PlainWords,
    problems: list[str],
) -> None:
    option, equals, value = word.partition("=")
    if option[:2] in SHORT and len(option) > 2:
        option, equals, value = word[:2], "=", word[2:].removeprefix("=")
    if option not in options:
        if "." in option:  # a part of a setting, which has its own grammar
            command.words.append(word)
        else:
            problems.append(f"unknown option {option:.60}{hint(option, options)} (see --help)")
            if not equals and remaining and remaining[0][:1] not in ("+", "~", "-"):
                remaining.pop(0)  # its value is not a second mistake
        return
    name, field_info = options[option]
    kind = plain_kind(field_info.annotation)
    if kind is bool:
        value = value or "true"
    elif not equals:
        if not remaining or remaining[0][:1] in ("+", "~") or remaining[0][:2] == "--":
            problems.append(f"{option} needs a value: {option} {'FILE' if kind is Path else 'VALUE'}")
            return
        value = remaining.pop(0)
    command.words.append(Change((name,), _scalar(value) if kind in (int, float, bool) else value))


def _scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _is_input(word: str) -> bool:
    path = Path(word)
    return (
        word.endswith(_ROWS) or is_pattern(path) or (path.is_file() and path.suffix not in _CONFIGS and _is_rows(path))
    )


def _is_rows(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(64).lstrip()[:1] in (b"{", b"(")  # JSON, or zstd


def _read_name(word: str, command: PlainWords, problems: list[str]) -> None:
    """Find a config by its path or its name; a file of this folder comes first."""
    if word.endswith(_CONFIGS):
        command.configs.append(word)
        return
    names = config_names(Path.cwd())
    packaged = sorted(names.get(word, ()))
    local_file = next((path for path in (word, *(f"{word}{end}" for end in _CONFIGS)) if Path(path).is_file()), None)
    if local_file is not None:
        command.configs.append(local_file)
        if packaged:
            say(f"{word}: the file {local_file} is used, not the config {packaged[0]}")
    elif len(packaged) == 1:
        command.configs.append(packaged[0])
        here = Path.cwd() / packaged[0]
        if here.is_file() and any(each.is_file() and not here.samefile(each) for each in in_package(packaged[0])):
            say(f"{word}: {packaged[0]} of this folder is used, not the packaged one")
    elif packaged:
        problems.append(f"{word}: several configs have this name; give one of {', '.join(packaged)}")
    elif configs := _configs_in(word):
        command.configs += configs
    else:
        problems.append(f"{word}: {_unknown_name(word, names)}")


def _configs_in(word: str) -> list[str]:
    """The config in a folder: the one with the name of the folder, or the only one."""
    configs = sorted(Path(word).glob("configs/*.y*ml")) if os.sep in word and Path(word).is_dir() else []
    same_name = [path for path in configs if path.stem == Path(word).name]
    return [str(path) for path in same_name or configs] if len(same_name or configs) == 1 else []


def _unknown_name(word: str, names: Mapping[str, set[str]]) -> str:
    suggestion = hint(word, names)
    models = [name for name, paths in names.items() if any(path.startswith(MODELS) for path in paths)]
    advice = suggestion or f"; velo envs lists the environments; models are {', '.join(sorted(models))}"
    return f"no file and no config of this name{advice}"


def config_names(cwd: Path) -> dict[str, set[str]]:
    """The names and paths of configs in this folder, in installed environments and in the package."""
    names: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = {}
    for config in (config for root in (cwd, PACKAGE) for kind in KINDS for config in configs_of(kind, root)):
        folder_name, _, file_name = config.partition("/configs/")
        folders.setdefault(folder_name, set()).add(file_name)
    for name in installed_names():
        folder = installed_place(f"{RESOURCES}/{name}")
        for file in folder.glob("configs/*.y*ml") if folder is not None else ():
            folders.setdefault(f"{RESOURCES}/{name}", set()).add(file.name)
    for folder_name, files in folders.items():
        environment = folder_name.rpartition("/")[2]
        for file_name in files:
            path, stem = f"{folder_name}/configs/{file_name}", Path(file_name).stem
            for name in {stem, environment} if len(files) == 1 else {stem}:
                names.setdefault(name, set()).add(path)
    return names


def _folder(config: str) -> str | None:
    """The folder of the environment with this config; None for a config of another kind."""
    parts = Path(config).parts
    return "/".join(parts[:-2]) if RESOURCES in parts[:-3] and parts[-2] == "configs" else None
