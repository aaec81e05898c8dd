"""Environments and teachers by name. Only the module that is needed is imported, and with it the packages it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from velodrome.errors import InputError
from velodrome.training.envs.env_names import agents_problem, kind_of, no_wheel
from velodrome.training.envs.interface import Teacher, VectorEnv
from velodrome.training.settings import EnvSettings


def make_env(settings: EnvSettings, seed: int) -> VectorEnv:
    """The environments that `settings.name` names, reset with `seed`."""
    problem = agents_problem(settings.name, settings.agents)
    if problem:
        raise InputError(problem)
    kind = kind_of(settings.name)
    try:
        with fits_into_memory(f"{settings.name} with env.num_envs={settings.num_envs}"):
            env: VectorEnv = import_module(kind.module).make(settings)
    except ModuleNotFoundError as missing:
        way = no_wheel(kind) or f'pip install "velodrome[{kind.extra}]"'
        needed = f'needs the package "{missing.name}" ({way})'
        raise InputError(f"env.name={settings.name}: {needed}") from missing
    try:
        env.reset(seed)
    except BaseException:
        env.close()
        raise
    return env


def make_teacher(settings: EnvSettings, env: VectorEnv) -> Teacher | None:
    """The scripted teacher of this environment, if it has one."""
    kind = kind_of(settings.name)
    if not kind.teacher:
        return None
    teacher: Teacher = import_module(kind.module).make_teacher(env)
    return teacher


@contextmanager
def fits_into_memory(what: str) -> Iterator[None]:
    """Around the making of what may be too large for the machine."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch has no better word for it
        if isinstance(error, RuntimeError) and "memory" not in str(error) and "size" not in str(error):
            raise
        raise InputError(f"{what} does not fit into memory; use less") from error
