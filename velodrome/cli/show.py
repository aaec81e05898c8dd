"""`velo show`: one rollout as a readable transcript."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from velodrome.errors import InputError
from velodrome.read.transcript import transcript
from velodrome.records.jsonl import read_lines
from velodrome.records.rollout import key_in

EXAMPLES = """examples:
  velo show rollouts.jsonl              the first rollout
  velo show rollouts.jsonl 17           the 17th line
  velo show rollouts.jsonl 9f31c2a0/0   the rollout with this key
  velo show rollouts.jsonl --all | less
  velo show rollouts.failures.jsonl     the first failure: its reason, and how far it came"""


def run(argv: Sequence[str]) -> int:
    """Find the rollout, print it."""
    parser = argparse.ArgumentParser(
        prog="velo show",
        description="Print a rollout as a readable transcript.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="a rollouts or failures file (.jsonl or .jsonl.zst)")
    parser.add_argument("which", nargs="?", default="1", help="a line number from 1, or a key")
    parser.add_argument("--all", action="store_true", help="every rollout")
    given = parser.parse_args(argv)
    if not given.file.is_file():
        raise InputError(f"{given.file}: no such file")
    found, position = False, 0
    for position, (number, line) in enumerate(read_lines(given.file, mendable=True), 1):
        if not (given.all or str(position) == given.which or given.which in (key_in(line), failed_key(line))):
            continue
        found = True
        try:
            row = orjson.loads(line)
            print(transcript(row))
        except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
            problem = f"{given.file}:{number}: not a rollout ({error})"
            if not given.all:
                raise InputError(problem) from error
            print(problem, file=sys.stderr)
            continue
        if not given.all:
            break
    if not found:
        raise InputError(f"{given.file}: no rollout {given.which!r}; a line number from 1 to {position}, or a key")
    return 0


def failed_key(line: bytes) -> str | None:
    """The key of a line of a failures file."""
    try:
        key = orjson.loads(line)["key"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return key if isinstance(key, str) else None
