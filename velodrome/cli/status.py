"""`velo status`: the servers that run, as the head server tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from velodrome.cli.options import HeadOptions, load_options
from velodrome.cli.verb import Verb
from velodrome.errors import ServerError

VERB = Verb(
    usage="velo status [--json] [+key=value …]",
    about="The servers that velo run started: where, since when, and how often they were restarted.",
    settings={"settings": HeadOptions},
    plus=True,
    more="""exit code: 0 all are well, 1 one is not, or none runs

examples:
  velo status
  velo status --json +head_server.port=11001""",
)

_COLUMNS = ("name", "type", "status", "url", "pid", "uptime_s", "restarts")


def run(argv: Sequence[str]) -> int:
    """Ask the head and print."""
    from velodrome.serving.discovery import read_head
    from velodrome.serving.process.listen import head_address

    words = [word for word in argv if word != "--json"]
    config, _ = load_options(HeadOptions, [*words, "+config_paths=[]"])
    head = read_head(config.settings)
    if head is None:
        host, port = head_address(config.settings)
        raise ServerError(f"no servers run: no head server answers at {host}:{port} (start them with velo run)")
    if "--json" in argv:
        print(orjson.dumps(head.instances, option=orjson.OPT_INDENT_2).decode())
    else:
        print(table(head.instances))
    return 0 if head.instances and all(each["status"] == "ok" for each in head.instances) else 1


def table(instances: Sequence[dict[str, Any]]) -> str:
    """The servers as aligned columns."""
    several = [{**each, "pid": each.get("pids") or each.get("pid")} for each in instances]
    rows = [[*_COLUMNS], *([_shown(each.get(column)) for column in _COLUMNS] for each in several)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(str(each) for each in value)
    return f"{value:.0f}" if isinstance(value, float) else str(value)
