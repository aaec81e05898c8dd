"""`velo verify`: give saved rollouts their score."""

from __future__ import annotations

from collections.abc import Sequence

from velodrome.cli.collect import (
    LIMITS,
    SERVERS,
    find_input,
    find_servers,
    finish,
    refuse_output,
    run_async,
    say,
    use_limits,
)
from velodrome.cli.settings import Setting, read_settings, settings_help
from velodrome.collector.budget import Budget
from velodrome.collector.order import Options
from velodrome.collector.pace import DEFAULT_PARALLEL
from velodrome.collector.verify import default_output, verify
from velodrome.errors import InputError
from velodrome.settings import load

SETTINGS = (
    Setting("input_jsonl_fpath", "path", None, "the rollouts to score"),
    Setting("output_jsonl_fpath", "path", None, "where scored rollouts go [<input>.verified.jsonl]"),
    Setting("agent_name", "text", None, "score with this agent's environment [the one each rollout names]"),
    Setting("limit", "count", None, "how many rollouts [all]"),
    Setting("num_samples_in_parallel", "parallel", DEFAULT_PARALLEL, "rollouts in flight, or auto"),
    Setting("overwrite", "flag", False, "throw away what the output has"),
    Setting("allow_mixed", "flag", False, "add to scores made with other settings"),
    Setting("max_wall_s", "number", None, "stop after so many seconds"),
    Setting("max_failures", "number", None, "stop after more failures than this; below 1 a share"),
    Setting("drain_s", "number", 30.0, "how long Ctrl-C or a budget waits for what is in flight"),
    Setting("server_wait_s", "number", 300.0, "how long to wait for a server that is away"),
    *SERVERS,
    *LIMITS,
)
HELP = f"""usage: velo verify [ROLLOUTS] [+key=value …]

Score a saved file with its environment: rollouts collected with +defer_verification=true, or finished ones with another
config. Scores go to a new file under the same keys; the same command again goes on where it stopped.

settings (docs/collect.md#deferred-verification):
{settings_help(SETTINGS)}
  +config_paths=[a.yaml,b.yaml]         the environment, and the agent that names it (its model is not needed); not
                                        needed while servers run

examples:
  velo verify rollouts.jsonl "+config_paths=[resources_servers/calculator/configs/calculator.yaml]"
  velo verify rollouts.jsonl +output_jsonl_fpath=strict.jsonl +config_paths=[strict.yaml]"""


def run(argv: Sequence[str]) -> int:
    """Verify, print the metrics, and say how it ended."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    words = [f"+input_jsonl_fpath='{word}'" if "=" not in word and word[:1] not in "+~" else word for word in argv]
    config = load(words, known=[setting.name for setting in SETTINGS], scoring=True)
    given = read_settings(config.settings, SETTINGS)
    if given["input_jsonl_fpath"] is None:
        raise InputError("no input: velo verify rollouts.jsonl +config_paths=[…] (see velo verify --help)")
    source = find_input(given["input_jsonl_fpath"])
    output = given["output_jsonl_fpath"] or default_output(source)
    refuse_output(output, source)
    options = Options(
        input=source,
        output=output,
        agent=given["agent_name"],
        limit=given["limit"],
        parallel=given["num_samples_in_parallel"],
        overwrite=given["overwrite"],
        allow_mixed=given["allow_mixed"],
        budget=Budget(None, given["max_wall_s"], given["max_failures"]),
        drain_s=given["drain_s"],
        server_wait_s=given["server_wait_s"],
        what="Verifying rollouts",
    )
    config, servers = find_servers(config, scoring=True)
    use_limits(config)
    return finish(run_async(verify(options, config, say, servers)), options.output)
