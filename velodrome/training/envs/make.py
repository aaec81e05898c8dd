"""Environments and teachers by name. Only the module that is needed is imported, and with it the packages it needs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

from velodrome.errors import InputError
from velodrome.training.envs.env_names import FOREIGN, foreign_kind, own_size
from velodrome.training.envs.interface import Teacher, VectorEnv
from velodrome.training.settings import EnvSettings

Made = TypeVar("Made")


def make_env(settings: EnvSettings, seed: int) -> VectorEnv:
    """The environments that `settings.name` names, reset with `seed`."""
    size = own_size(settings.name)
    if size is not None:
        from velodrome.training.envs.extractor_hub.env import ExtractorHub

        return _fitting(
            settings,
            lambda: ExtractorHub(
                size,
                num_envs=settings.num_envs,
                agents=settings.agents,
                max_steps=settings.max_steps,
                notes=settings.notes,
                seed=seed,
            ),
        )
    kind = foreign_kind(settings.name)
    assert kind is not None, "EnvSettings accepts no other name"
    module, extra = FOREIGN[kind]
    try:
        env: VectorEnv = import_module(module).make(settings)
    except ModuleNotFoundError as missing:
        problem = f'env.name={settings.name}: needs the package "{missing.name}" (pip install "velodrome[{extra}]")'
        raise InputError(problem) from missing
    env.reset(seed)
    return env


def make_teacher(settings: EnvSettings, env: VectorEnv) -> Teacher | None:
    """The scripted teacher of this environment, if it has one."""
    size = own_size(settings.name)
    if size is None:
        return None
    from velodrome.training.envs.extractor_hub.teacher import Thinky

    return _fitting(settings, lambda: Thinky(size, num_envs=env.spec.num_envs, agents=env.spec.agents))


def _fitting(settings: EnvSettings, make: Callable[[], Made]) -> Made:
    """What `make` returns, if the machine has the memory."""
    try:
        return make()
    except MemoryError as error:
        size = f"env.num_envs={settings.num_envs} of {settings.name} with {settings.agents} agents"
        raise InputError(f"{size}: does not fit into memory ({error}); use fewer, or a smaller map") from error
