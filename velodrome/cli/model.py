"""`velo model`: local weights to pull and list, and a scripted model behind HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from velodrome.cli.options import load_options
from velodrome.cli.streams import help_width, say
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.settings.model import Settings
from velodrome.settings.values import Port, Text


class ModelServeOptions(Settings):
    """The settings of `velo model serve`."""

    name: Text = Field("policy_model", description="the scripted model of the config to serve")
    host: Text = Field("127.0.0.1", description="the loopback address to listen on")
    port: Port = Field(8000, description="the port to listen on; 0 is any free one")


class PullFlags(Settings):
    """The flags of `velo model pull`."""

    name: Text | None = argument(None, title="NAME", description="which model")


VERB = Verb(
    usage="velo model pull [NAME]      fetch a local model into the cache, checked by its hash\n"
    "velo model list             list the local models\n"
    "velo model serve CONFIG [+key=value …]\n"
    "                            serve a scripted model, faults included",
    about="Local weights, and a scripted model behind HTTP.",
    settings={"settings of serve": ModelServeOptions},
    plus=True,
    more="""examples:
  velo model pull
  velo model serve scripted_model --port 8000""",
)


def run(argv: Sequence[str]) -> int:
    """Pull, list or serve."""
    if not argv:
        print(VERB.help(help_width()))
        return 0
    what, *rest = argv
    if what == "serve":
        return serve(rest)
    if what not in ("pull", "list"):
        raise InputError(f"velo model pull, list or serve, not {what!r}")
    from velodrome.responses_api_models.local_model import weights

    if what == "pull":
        name = read_flags(PullFlags, rest, "velo model pull").name or weights.DEFAULT
        print(weights.pull(name, progress=say))
        return 0
    read_flags(Settings, rest, "velo model list")
    for entry in weights.available():
        where = entry.path if entry.cached else "not pulled yet: velo model pull " + entry.name
        print(f"{entry.name:<16} {entry.size_bytes / 2**20:6.0f} MiB  {entry.licence:<12} {where}")
    return 0


def serve(argv: Sequence[str]) -> int:
    """Host the scripted model of a config until Ctrl-C."""
    from velodrome.cli.collect import run_async
    from velodrome.responses_api_models.scripted_model.app import ScriptedModel
    from velodrome.serving.components import Components
    from velodrome.serving.scripted import ScriptedServer

    config, settings = load_options(ModelServeOptions, argv)
    model = Components(config).connect(settings.name)
    if not isinstance(model, ScriptedModel):
        raise InputError(f"{settings.name}: velo model serve hosts a scripted_model only")
    if settings.host not in ("127.0.0.1", "localhost", "::1"):
        raise InputError(f"host {settings.host!r}: a scripted model is served on loopback only (127.0.0.1)")

    async def forever() -> None:
        async with ScriptedServer(model, settings.host, settings.port) as server:
            say(f"{server.url}  (Ctrl-C ends it)")
            await server.wait()

    run_async(forever())
    return 0
