"""Runs inside the sandbox as a separate file: executes cells of code, one after the other, in one namespace.

A request and a reply are one line of JSON each. While a cell runs, the output of the process and its child processes
goes to a file; the reply has the beginning and the end of it. The other side trusts nothing from here.
"""

import ast
import json
import linecache
import os
import sys
import tempfile
import traceback
from typing import Any

CELL = "<cell>"


def execute(code: str, names: dict[str, Any]) -> None:
    """Run a cell; the value of its last expression is printed, as at a prompt."""
    linecache.cache[CELL] = (len(code), None, code.splitlines(keepends=True), CELL)
    tree = ast.parse(code, CELL)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, CELL, "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), CELL, "eval"), names)
        if value is not None:
            names["_"] = value
            sys.stdout.write(f"{value!r}\n")


def short_traceback(error: BaseException) -> str:
    """The error with the lines of the cell in its traceback, without the lines of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != CELL:
        frames = frames.tb_next
    lines = "".join(traceback.format_exception(type(error), error, frames, chain=False)).splitlines()
    return "\n".join([*lines[:4], "  …", *lines[-8:]] if len(lines) > 14 else lines)


class Reported:
    """Write any exception of the cell to stderr, and let the interpreter continue."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, frames: Any) -> bool:
        sys.stdout.flush()
        if error is not None:
            sys.stderr.write(short_traceback(error) + "\n")
        return True


def both_ends(file: Any, max_bytes: int) -> str:
    """The text of a file; only its beginning and end if it is longer than `max_bytes`."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= max_bytes:
        return str(file.read().decode("utf-8", "replace"))
    head = file.read(max_bytes // 2)
    file.seek(size - max_bytes // 2)
    tail = file.read(max_bytes // 2)
    left_out = f"\n… {size - len(head) - len(tail)} bytes left out …\n"
    return str(head.decode("utf-8", "replace") + left_out + tail.decode("utf-8", "replace"))


def answer(code: str, names: dict[str, Any], max_bytes: int) -> str:
    """Run a cell and return its output."""
    process = os.getpid()
    with tempfile.TemporaryFile(dir=".") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        with Reported():
            execute(code, names)
        if os.getpid() != process:  # a child process that the cell forked must not continue as an interpreter
            os._exit(0)
        sys.stdout.flush()
        sys.stderr.flush()
        return both_ends(file, max_bytes)


def main() -> None:
    """Answer requests until stdin ends."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    names: dict[str, Any] = {"__name__": "__main__"}
    for line in requests:
        request = json.loads(line)
        text = answer(request["code"], names, request["most"])
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        replies.write(json.dumps({"mark": request["mark"], "text": text}).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
