"""`velo metrics`: the numbers a collection printed, from the file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from velodrome.errors import InputError
from velodrome.read.metrics import read_metrics

EXAMPLES = """examples:
  velo metrics rollouts.jsonl
  velo metrics rollouts.jsonl.zst | jq .reward

docs/metrics.md says what each number is."""


def run(argv: Sequence[str]) -> int:
    """Read one file, print its metrics as JSON."""
    parser = argparse.ArgumentParser(
        prog="velo metrics",
        description="The numbers of a rollouts file, as JSON.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="a rollouts file (.jsonl or .jsonl.zst)")
    path: Path = parser.parse_args(argv).file
    print_metrics(path)
    return 0


def print_metrics(path: Path) -> None:
    """The metrics on stdout, notes about unreadable lines on stderr."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.name.endswith((".failures.jsonl", ".failures.jsonl.zst")):
        raise InputError(f"{path}: a failures file has no metrics; velo show {path} reads it")
    metrics, notes = read_metrics(path)
    for note in notes[:20]:
        print(note, file=sys.stderr)
    print(orjson.dumps(metrics, option=orjson.OPT_INDENT_2).decode())
