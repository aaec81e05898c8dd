"""Environments and teachers by name. Only the module that is needed is imported, and with it the packages it needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

from velodrome.errors import InputError
from velodrome.training.envs.env_names import agents_problem, kind_of, no_wheel
from velodrome.training.envs.frame_stack import FrameStack
from velodrome.training.envs.interface import Teacher, VectorEnv
from velodrome.training.settings import EnvSettings

Made = TypeVar("Made")

SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")  # Linux: without them no window can open


def make_env(settings: EnvSettings, seed: int, *, pictures: bool = False) -> VectorEnv:
    """The environments that `settings.name` names, reset with `seed`; `pictures` if they will be asked for them."""
    problem = agents_problem(settings.name, settings.agents)
    if problem:
        raise InputError(problem)
    kind = kind_of(settings.name)
    if sys.platform == "linux" and not os.environ.keys() & set(SCREENS):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame would print that it looked for a screen
    drawing = {"pictures": True} if pictures and kind.draws else {}
    try:
        env: VectorEnv = _fitting(settings, lambda: import_module(kind.module).make(settings, **drawing))
    except ModuleNotFoundError as missing:
        way = no_wheel(kind) or f'pip install "velodrome[{kind.extra}]"'
        needed = f'needs the package "{missing.name}" ({way})'
        raise InputError(f"env.name={settings.name}: {needed}") from missing
    try:
        env = FrameStack(env, settings.frame_stack) if settings.frame_stack > 1 else env
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
    teacher: Teacher = _fitting(settings, lambda: import_module(kind.module).make_teacher(env))
    return teacher


def _fitting(settings: EnvSettings, make: Callable[[], Made]) -> Made:
    """What `make` returns, if the machine has the memory."""
    try:
        return make()
    except MemoryError as error:
        size = f"env.num_envs={settings.num_envs} of {settings.name} with {settings.agents} agents"
        raise InputError(f"{size}: does not fit into memory ({error}); use fewer, or a smaller map") from error
