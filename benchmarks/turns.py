"""`python -m benchmarks.turns OTHER`: this checkout and another one, measured in turns.

OTHER is a folder with another version and its own `.venv`. A round runs `benchmarks.run` once in each, and who goes
first changes. The table has every figure that has a budget: median and range of both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from benchmarks.commands import ROOT
from benchmarks.summary import shown, spread, table


def figures(checkout: Path, parts: list[str]) -> dict[str, float]:
    """One run of these parts; each figure by its name. A part that this version does not have is left out."""
    result: dict[str, float] = {}
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="velodrome-turns-") as folder:
            json = Path(folder) / "figures.json"
            python = checkout / ".venv" / "bin" / "python"
            command = [str(python), "-m", "benchmarks.run", "--rounds", "1", "--only", part, "--json", str(json)]
            subprocess.run(command, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            if json.exists():
                result |= {check["what"]: check["value"] for check in orjson.loads(json.read_bytes())["checks"]}
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("other", type=Path, help="the folder of the other version")
    parser.add_argument("--only", action="append", help="a part of benchmarks.run; may be given again")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    sides: dict[Path, dict[str, list[float]]] = {args.other.resolve(): {}, ROOT: {}}
    for turn in range(args.rounds):
        for checkout, values in list(sides.items())[:: -1 if turn % 2 else 1]:
            print(f"round {turn + 1}/{args.rounds}  {checkout.name}", file=sys.stderr, flush=True)
            for what, value in figures(checkout, args.only or ["collector", "startup"]).items():
                values.setdefault(what, []).append(value)
    names = dict.fromkeys(what for values in sides.values() for what in values)
    rows = [
        [what, *("-" if what not in values else shown(spread(values[what]), 3) for values in sides.values())]
        for what in names
    ]
    print(table(["what", "other", "this"], rows))


if __name__ == "__main__":
    main()
