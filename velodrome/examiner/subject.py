"""The subject of an examination: a function that creates the environment, and its example tasks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, blame
from velodrome.examiner.catalogue import catalogue
from velodrome.records.jsonl import read_lines
from velodrome.records.task import check_task, parse_task, task_id
from velodrome.serving.components import Components, component_class, entry_file, load_file, only_component, unknown
from velodrome.settings import Instance, load
from velodrome.settings.files import find_input
from velodrome.settings.names import AGENTS, RESOURCES
from velodrome.settings.overrides import Word

Json = dict[str, Any]

EXAMPLES = "data/example.jsonl"


@dataclass(frozen=True)
class TaskRow:
    """One example task, or the problem of a line that is not a task."""

    task_id: str
    task: Json | None
    problem: str = ""


@dataclass(frozen=True)
class Subject:
    """An environment to examine. `make` creates or returns it; the examination closes it if it is `owned`."""

    name: str
    make: Callable[[], Any]
    rows: Sequence[TaskRow]
    no_tasks: str = "there are no tasks"
    owned: bool = True


def named_subject(name: str, overrides: Sequence[Word] = (), tasks: Any = None) -> Subject:
    """The environment of a folder, a file, an implementation or, with a config, an instance."""
    if overrides:
        return _configured(name, overrides, tasks)
    path, _, class_name = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    if path.endswith(".py"):
        owner = _class_in_file(Path(path), class_name)
        return class_subject(owner, tasks, folder=Path(path).parent)
    folder = Path(name)
    if (folder / "app.py").is_file():
        return class_subject(_class_in_file(folder / "app.py"), tasks, folder=folder, name=folder.resolve().name)
    if folder.name != name:
        raise InputError(f"{name}: no app.py there; give a folder with one, file.py:Class, or a name (see velo envs)")
    names = [each.name for each in catalogue(Path.cwd())]
    if name not in names:
        raise InputError(unknown("environment", name, names))
    instance = Instance(name, RESOURCES, name, {}, RESOURCES)
    entry = entry_file(instance, Path.cwd())
    return class_subject(component_class(instance, Path.cwd()), tasks, folder=entry.parent, name=name)


def class_subject(owner: type, tasks: Any = None, *, folder: Path | None = None, name: str = "") -> Subject:
    """A class, created with its `example_settings`."""
    settings = getattr(owner, "example_settings", dict)

    def make() -> Any:
        with blame(InputError, f"{owner.__name__}: cannot be made"):
            return owner(**settings())

    rows, missing = _rows(tasks, folder or _folder_of(owner))
    return Subject(name or owner.__name__, make, rows, missing)


def live_subject(environment: Any, tasks: Any = None) -> Subject:
    """An environment that the caller has created and will close."""
    rows, missing = _rows(tasks, _folder_of(type(environment)))
    return Subject(type(environment).__name__, lambda: environment, rows, missing, owned=False)


def _configured(name: str, overrides: Sequence[Word], tasks: Any) -> Subject:
    config = load(overrides, scoring=True)
    names = [each.name for each in config.instances.values() if each.kind == RESOURCES]
    if name not in names:
        raise InputError(unknown("environment", name, names))
    files = [
        str(data.get("jsonl_fpath"))
        for each in config.instances.values()
        if each.kind == AGENTS and each.environment() == name
        for data in each.settings.get("datasets") or ()
        if isinstance(data, dict) and data.get("type") == "example"
    ]
    folder = None
    if "url" not in config.instances[name].settings:
        folder = entry_file(config.instances[name], Path.cwd()).parent
    rows, missing = _rows(tasks or (files[0] if files else None), folder)
    return Subject(name, lambda: Components(config).connect(name), rows, missing)


def _class_in_file(path: Path, class_name: str = "") -> type:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    home = path.resolve().parent
    root = home.parent.parent if home.parent.name == RESOURCES else home
    module = load_file(path.resolve(), f"velodrome_component_{RESOURCES}_{home.name}_{path.stem}", root)
    if not class_name:
        return only_component(module, RESOURCES)
    owner = getattr(module, class_name, None)
    if not inspect.isclass(owner):
        names = [key for key, value in vars(module).items() if inspect.isclass(value)]
        raise InputError(f"{path}: " + unknown("class", class_name, names))
    return owner


def _folder_of(owner: type) -> Path | None:
    file = getattr(sys.modules.get(owner.__module__), "__file__", None)
    return None if file is None else Path(file).parent


def _rows(tasks: Any, folder: Path | None) -> tuple[list[TaskRow], str]:
    """The caller's tasks, or else the examples in the environment's folder; and the message if there are none."""
    if tasks is not None and not isinstance(tasks, str | Path):
        return [_task_row(number, task) for number, task in enumerate(_check_list(tasks))], "no tasks were given"
    if tasks is not None:
        return _read_rows(find_input(Path(tasks))), f"{tasks}: no tasks in it"
    path = None if folder is None else folder / EXAMPLES
    if path is None or not path.is_file():
        return [], f"there are no tasks: {EXAMPLES} is not there, and none were given (--tasks)"
    return _read_rows(path), f"{path}: no tasks in it"


def _check_list(tasks: Any) -> Iterable[Any]:
    if isinstance(tasks, Iterable) and not isinstance(tasks, dict | bytes):
        return tasks
    raise InputError(f"tasks: expected a path or a list of tasks, not {tasks!r:.80}")


def _task_row(index: int, task: Any) -> TaskRow:
    row = {"responses_create_params": {"input": task}} if isinstance(task, str) else task
    try:
        check_task(row)
        return TaskRow(task_id(row), orjson.loads(orjson.dumps(row)))
    except (ValueError, TypeError) as error:
        return TaskRow(_name_of(row) or f"number {index + 1}", None, str(error))


def _read_rows(path: Path) -> list[TaskRow]:
    rows = []
    for line_number, line in read_lines(path):
        try:
            row = parse_task(bytes(line))
            rows.append(TaskRow(task_id(row), row))
        except ValueError as error:
            rows.append(TaskRow(f"{path.name}:{line_number}", None, str(error)))
    return rows


def _name_of(row: Any) -> str:
    with suppress(TypeError, ValueError, AttributeError):
        return task_id(row)
    return ""
