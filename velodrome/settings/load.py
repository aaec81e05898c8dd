"""Load the configuration of a run: files < env.yaml < command line, merged and resolved once.

One `InputError` reports all mistakes, but not those that only follow from another mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.settings.blocks import Config, check_known, check_references, instances, keep_for_scoring
from velodrome.settings.files import ENV_FILE, Layer, Reader
from velodrome.settings.interpolation import referenced, resolve
from velodrome.settings.overrides import COMMAND_LINE, Change, Word, parse
from velodrome.settings.tree import Tree, is_block, walk
from velodrome.settings.values import LARGEST


def load(
    overrides: Sequence[Word],
    *,
    known: Collection[str] = (),
    config_paths: Sequence[str] | None = None,
    cwd: Path | None = None,
    scoring: bool = False,
) -> Config:
    """Load the configuration from the command line, `env.yaml` and the files they include.

    `known` holds the settings of the verb; if it is empty, keys are not checked.
    `config_paths` come from a call in Python. For `scoring`, models that are used only for rollouts are left out.
    """
    cwd = cwd or Path.cwd()
    problems: list[str] = []
    changes, broken = parse(overrides, problems)
    reader = Reader(cwd, problems)
    tree = Tree()
    for layer in _layers(changes, config_paths, reader):
        tree.merge(layer)
    settings_changes = [change for change in changes if change.path[0] != "config_paths"]
    in_files = set(tree.data)
    applied = []
    for change in settings_changes:
        problem = tree.apply(change)
        if problem is None:
            applied.append(change)
        elif reader.complete or not change.remove:
            problems.append(problem)
    if scoring:
        keep_for_scoring(tree.data)
    data = resolve(tree, problems, excused=broken, complete=reader.complete)
    problems += _too_large(data, tree)
    blocks_by_name = instances(data, tree, cwd, problems)
    if reader.complete:
        check_references(blocks_by_name, tree, problems)
        if known:
            blocks = {name for name, value in data.items() if is_block(value)}
            valid = in_files | blocks | referenced(tree.data)
            check_known(applied, list(known), valid, problems)
    if problems:
        raise InputError(*dict.fromkeys(problems))
    return Config({key: value for key, value in data.items() if key not in blocks_by_name}, blocks_by_name)


def _too_large(data: dict[str, Any], tree: Tree) -> Iterator[str]:
    """A problem for each whole number that does not fit into a run file."""
    for path, value in walk(data):
        if isinstance(value, int) and abs(value) > LARGEST:
            yield f"{tree.source(path)}: {'.'.join(path)}: expected a whole number up to {LARGEST}"


def _layers(changes: Sequence[Change], config_paths: Sequence[str] | None, reader: Reader) -> list[Layer]:
    env = reader.read_env()
    paths, source = _config_paths(changes, env.data.pop("config_paths", None), reader.problems)
    if config_paths is not None:
        paths, source = list(config_paths), "config"
    return [*reader.read_all(paths, source), env]


def _config_paths(changes: Sequence[Change], from_env: Any, problems: list[str]) -> tuple[Any, str]:
    """The value of `config_paths`, and its source."""
    paths, source = from_env, ENV_FILE
    for change in changes:
        if change.path[0] == "config_paths":
            if len(change.path) > 1:
                problems.append(f"{COMMAND_LINE}: {'.'.join(change.path)}: give config_paths whole, as a list")
            else:
                before = paths if change.append and source == COMMAND_LINE and isinstance(paths, list) else []
                paths, source = ([*before, *change.value] if change.append else change.value), COMMAND_LINE
                if change.remove:
                    paths = None
    return paths, source
