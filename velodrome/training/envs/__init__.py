"""Environments by name. Only the one that is asked for is imported, and with it the packages it needs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from velodrome.errors import InputError
from velodrome.training.envs.names import FOREIGN, faults, foreign_kind, own_size
from velodrome.training.settings import EnvSettings

if TYPE_CHECKING:  # it needs numpy, which names do not
    from velodrome.training.envs.interface import Environment, Teacher

Made = TypeVar("Made")


def make_env(settings: EnvSettings, seed: int) -> Environment:
    """The environments that `settings.name` names, begun with `seed`."""
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
    if kind is None:
        raise InputError(*faults(settings.name, settings.agents))
    module, extra = FOREIGN[kind]
    try:
        env: Environment = import_module(module).make(settings)
    except ModuleNotFoundError as missing:
        problem = f'env.name={settings.name}: needs the package "{missing.name}" (pip install "velodrome[{extra}]")'
        raise InputError(problem) from missing
    env.reset(seed)
    return env


def make_teacher(settings: EnvSettings, env: Environment) -> Teacher | None:
    """Who can teach in this environment, if anyone."""
    size = own_size(settings.name)
    if size is None:
        return None
    from velodrome.training.envs.extractor_hub.teacher import Thinky

    return _fitting(settings, lambda: Thinky(size, num_envs=env.spec.num_envs, agents=env.spec.agents))


def _fitting(settings: EnvSettings, make: Callable[[], Made]) -> Made:
    """What `make` makes, if the machine has the memory."""
    try:
        return make()
    except MemoryError as error:
        asked = f"env.num_envs={settings.num_envs} of {settings.name} with {settings.agents} agents"
        raise InputError(f"{asked}: do not fit into memory ({error}); give fewer, or a smaller map") from error
