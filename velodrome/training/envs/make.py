"""Environments and teachers by name. Only the module that is needed is imported, and with it the packages it needs."""

from __future__ import annotations

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
