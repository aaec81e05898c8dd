"""Groups of `+name=value` settings that several verbs share.

A verb's settings are a model that inherits from these groups. In `--help` and the docs its own settings come first,
then those of the groups from left to right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import Field

from velodrome.cli.plain import read_plain
from velodrome.cli.streams import say
from velodrome.serving.process.options import ProfilingOptions
from velodrome.settings import Config, load
from velodrome.settings.model import Settings, setting_names
from velodrome.settings.values import Count, FilePath, Port, Text

O = TypeVar("O", bound=Settings)  # noqa: E741 - options


class HeadOptions(Settings):
    """The address and the token of the head server."""

    head_server: dict[str, Any] = Field({}, description="{host, port} of the head server; 127.0.0.1, 11000 by default")
    server_token: Text | None = Field(None, description="the token of the servers; or VELODROME_TOKEN")


class ServerOptions(HeadOptions):
    """Whether running servers are used."""

    embedded: bool = Field(False, description="run everything in this process, even if servers are running")


class WatchOptions(ProfilingOptions):
    """The reports of a collection: trace, metrics and spans."""

    trace_path: FilePath | None = Field(None, description="write a trace for Perfetto or Chrome (.json, .json.gz)")
    trace_max_mb: Count = Field(256, description="the largest size of a trace, before compression")
    metrics_port: Port | None = Field(None, description="serve numbers for Prometheus on this port of 127.0.0.1")
    otlp_endpoint: Text | None = Field(None, description="send every rollout to this OpenTelemetry endpoint")


def read_options(model: type[O], config: Config, defaults: Mapping[str, Any] = MappingProxyType({})) -> O:
    """The settings of a verb, from the configuration; its other keys may be for config files."""
    names = setting_names(model)
    return model.read({**defaults, **{name: value for name, value in config.settings.items() if name in names}})


def load_options(model: type[O], argv: Sequence[str], *, scoring: bool = False) -> tuple[Config, O]:
    """The configuration of a command line, and the verb's own settings. An unknown setting is refused.

    Without an input, a collection with one environment uses its example tasks.
    """
    command = read_plain(argv, model)
    config = load(command.words, known=setting_names(model), scoring=scoring)
    defaults = {}
    if "input" in model.model_fields and not scoring and len(command.examples) == 1:
        defaults = {"input_jsonl_fpath": command.examples[0]}
        if config.settings.get("input_jsonl_fpath") is None:
            say(f"tasks: the examples of the environment, {command.examples[0]}; a .jsonl file gives others")
    return config, read_options(model, config, defaults)
