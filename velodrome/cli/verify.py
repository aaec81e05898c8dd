"""`velo verify`: give saved rollouts their score."""

from __future__ import annotations

from collections.abc import Sequence

from velodrome.cli.collect import finish, run_async, stopped_by_signals, use_limits, with_output
from velodrome.cli.options import ServerOptions, load_options
from velodrome.cli.streams import say
from velodrome.cli.tables import without_json
from velodrome.cli.verb import Verb
from velodrome.collector import verify as verification
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface
from velodrome.collector.pace import Stop
from velodrome.collector.result import Run
from velodrome.collector.settings import VerifySettings
from velodrome.errors import InputError
from velodrome.serving.components import Servers
from velodrome.serving.process.options import ConnectionLimits
from velodrome.settings import Config
from velodrome.settings.files import find_input


class VerifyOptions(VerifySettings, ServerOptions, ConnectionLimits):
    """The settings of `velo verify`."""


VERB = Verb(
    usage="velo verify ROLLOUTS ENVIRONMENT [-o SCORED] [--setting VALUE …]\nvelo verify [ROLLOUTS] [+key=value …]",
    about="""\
Score a saved file with its environment: rollouts collected with +defer_verification=true, or finished ones with another
config. Scores go to a new file under the same keys; the same command again continues where it stopped. ENVIRONMENT is
the name of a config (velo envs), or a .yaml file.""",
    settings={"settings (docs/collect.md#deferred-verification)": VerifyOptions},
    plus=True,
    more="""\
  +config_paths=[a.yaml,b.yaml]  the environment, and the agent that names it (its model is not needed); not needed
                                 while servers run

examples:
  velo verify rollouts.jsonl calculator
  velo verify rollouts.jsonl strict.yaml -o strict.jsonl
  velo verify rollouts.jsonl +output_jsonl_fpath=strict.jsonl +config_paths=[strict.yaml]""",
)


def run(argv: Sequence[str]) -> int:
    """Verify, print the metrics, and say how it ended."""
    from velodrome.serving.discovery import find

    words, as_json = without_json(argv)
    config, options = load_options(VerifyOptions, words, scoring=True)
    if options.input is None:
        raise InputError("give one input: velo verify rollouts.jsonl calculator (see velo verify --help)")
    source = find_input(options.input)
    options, output = with_output(options, source, options.output or verification.default_output(source))
    config, servers = find(config, embedded=options.embedded, scoring=True)
    use_limits(options)
    return finish(run_async(verify(options, config, servers)), output, as_json=as_json)


async def verify(settings: VerifySettings, config: Config, servers: Servers) -> Run:
    """The scoring as a command: Ctrl-C drains it."""
    stop = Stop()
    with stopped_by_signals(stop):
        return await verification.verify(settings, ConfiguredAgents(config, servers), Surface(say, True, stop=stop))
