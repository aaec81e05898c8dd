"""`velo status`: the servers that run, as the head server tells it; `velo status FILE`: how far a collection is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from velodrome.cli.options import HeadOptions, load_options
from velodrome.cli.tables import print_lines, print_text
from velodrome.cli.verb import Verb
from velodrome.errors import InputError, ServerError
from velodrome.timing.report import table as columns_of

VERB = Verb(
    usage="velo status [--json] [+key=value …]\nvelo status FILE [--json]",
    about="""\
The servers that velo run started: where, since when, and how often they were restarted. With the output of a run:
how far it is, how fast, since when, how long it will take, whether its process is alive, and why it stopped.""",
    settings={"settings": HeadOptions},
    plus=True,
    more="""exit code: 0 all are well, 1 one is not, or none runs; of a FILE: 0 it runs or is done, 1 it ended early

examples:
  velo status
  velo status rollouts.jsonl
  velo status --json +head_server.port=11001""",
)

_COLUMNS = ("name", "type", "status", "url", "pid", "uptime_s", "restarts")


def run(argv: Sequence[str]) -> int:
    """Ask the head and print."""
    from velodrome.serving.discovery import read_head
    from velodrome.serving.process.listen import head_address

    words = [word for word in argv if word != "--json"]
    files = [word for word in words if "=" not in word and word[:1] not in ("+", "~", "-")]
    if files:
        if len(words) > 1:
            raise InputError("give one file: velo status rollouts.jsonl (see velo status --help)")
        return run_status(Path(files[0]).expanduser(), as_json="--json" in argv)
    config, _ = load_options(HeadOptions, [*words, "+config_paths=[]"])
    head = read_head(config.settings)
    if head is None:
        host, port = head_address(config.settings)
        raise ServerError(f"no servers run: no head server answers at {host}:{port} (start them with velo run)")
    if "--json" in argv:
        print_lines(orjson.dumps(head.instances, option=orjson.OPT_INDENT_2).decode())
    else:
        print_text(table(head.instances))
    return 0 if head.instances and all(each["status"] == "ok" for each in head.instances) else 1


def run_status(output: Path, *, as_json: bool) -> int:
    """Print how far the run is that writes this output."""
    from velodrome.collector.watch.live_state import read_live_state

    state = read_live_state(output)
    if as_json:
        print_lines(orjson.dumps(state, option=orjson.OPT_INDENT_2).decode())
    else:
        print_text(run_text(output, state))
    runs = "finished_at" not in state and state["alive"] is not False
    return 0 if runs or ("finished_at" in state and state["done"] >= state["total"]) else 1


def run_text(output: Path, state: dict[str, Any]) -> str:
    """The state of a run in three lines: what it does, since when, and the counts."""
    from velodrome.collector.watch.progress import RunState, progress_text
    from velodrome.timing.figures import long_duration

    ended, updated = state.get("finished_at"), state.get("updated_at", state["started_at"])
    age = long_duration(max(time.time() - (ended or updated), 0))
    if ended is not None and state["alive"] and not state.get("stopped"):
        what = f"done {age} ago; its process is still there"
    elif ended is not None:
        what = f"stopped {age} ago: {state['stopped']}" if state.get("stopped") else f"done {age} ago"
    elif state["alive"] is False:
        what = f"dead, {age} ago: its process was killed, or the machine went down"
    elif state["alive"]:
        what = f"running, process {state['pid']}"
    else:
        what = f"process {state['pid']} on {state['host']}, last seen {age} ago"
    began = datetime.fromtimestamp(state["started_at"]).strftime("%Y-%m-%d %H:%M:%S")
    lasted_s = (ended or updated) - state["started_at"]
    numbers: list[Any] = [state.get(name) for name in ("done", "total", "failed", "in_flight", "reward", "limit")]
    counts = RunState(*numbers)
    over = ended is not None or state["alive"] is False
    rate = None if over else state.get("rate") or 0.0
    numbers_text = progress_text(counts, rate, measured_s=lasted_s)
    return f"{output}: {what}\nsince {began} ({long_duration(lasted_s)})\n{numbers_text}"


def table(instances: Sequence[dict[str, Any]]) -> str:
    """The servers as aligned columns."""
    several = [{**each, "pid": each.get("pids") or each.get("pid")} for each in instances]
    return columns_of(_COLUMNS, ([_shown(each.get(column)) for column in _COLUMNS] for each in several), left=4)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(str(each) for each in value)
    return f"{value:.0f}" if isinstance(value, float) else str(value)
