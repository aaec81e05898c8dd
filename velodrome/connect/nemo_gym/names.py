"""The modules of `nemo_gym` that a folder can import without that package, and their names.

These modules exist only if the package is not installed.
"""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from velodrome.connect.nemo_gym import bases, types

PACKAGE = "nemo_gym"
_EVERYTHING = {
    name: value
    for module in (types, bases)
    for name, value in vars(module).items()
    if name.startswith("NeMoGym")
    or (not name.startswith("_") and (getattr(value, "__module__", "").startswith("velodrome.") or name.isupper()))
}
METRICS_MODULE = "reward_profile"
_METRICS = (
    *("compute_pass_majority_metrics", "highest_k_metrics", "compute_subset_metrics", "add_avg_sample_std_dev"),
    "compute_aggregate_metrics",
)
_NAMES = "base_resources_server openai_utils config_types server_utils global_config prompt judge"
MODULES = dict.fromkeys(_NAMES.split(), _EVERYTHING)


def is_installed() -> bool:
    """Whether the real package is installed."""
    package = sys.modules.get(PACKAGE)
    if package is not None:
        return not getattr(package, "stands_in", False)
    # A folder of that name, as in a clone of NeMo Gym, is not enough: its dependencies are not installed.
    return any(each.read_text("RECORD") is not None for each in metadata.distributions(name="nemo-gym"))


def stand_in() -> None:
    """Make the modules importable, unless the real package is."""
    if is_installed() or PACKAGE in sys.modules:
        return
    package = _module(PACKAGE, {"stands_in": True})
    package.__path__ = []
    for name, values in {**MODULES, METRICS_MODULE: {each: _missing_metric(each) for each in _METRICS}}.items():
        setattr(package, name, _module(f"{PACKAGE}.{name}", values))


def _module(name: str, values: dict[str, Any]) -> ModuleType:
    module = ModuleType(name, "A part of Velodrome that stands in for NeMo Gym's.")
    module.__spec__ = ModuleSpec(name, None, is_package=name == PACKAGE)
    vars(module).update(values)
    sys.modules[name] = module
    return module


def _missing_metric(name: str) -> Any:
    """A metric over many rollouts. Nothing here calls it: velo metrics computes ours."""

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{PACKAGE}.reward_profile.{name} needs the nemo-gym package; see velo metrics")

    fail.__name__ = name
    return fail
