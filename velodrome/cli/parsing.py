"""A parser whose every complaint is one line, and the kinds of arguments that several verbs take."""

from __future__ import annotations

import argparse
from math import isfinite
from pathlib import Path
from typing import NoReturn

from velodrome.errors import InputError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser for which a wrong flag is an `InputError`."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def count(text: str) -> int:
    """A whole number from 1."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, not {text!r:.40}")
    return number


def number(text: str) -> float:
    """A number that is neither NaN nor infinite."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise argparse.ArgumentTypeError(f"a number, not {text!r:.40}")
    return value


def place(text: str) -> Path:
    """A file or folder to write; nothing at all would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("a name, not nothing")
    return Path(text)


def jsonl_file(text: str) -> Path:
    """A file of JSON lines to write."""
    if not text.endswith((".jsonl", ".jsonl.zst")):
        raise argparse.ArgumentTypeError(f"a name that ends in .jsonl or .jsonl.zst, not {text!r:.80}")
    return Path(text)
