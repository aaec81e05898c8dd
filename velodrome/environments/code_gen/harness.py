"""Runs inside the sandbox as a separate file: calls one function of solution.py and writes its value.

Nothing here is trusted: the program may read this process's memory and write to its output. It could only forge a
value, and the expected value is not in the sandbox. The program's own prints go to stderr.
"""

import json
import os
import sys
from typing import Any


def plain(value: Any) -> Any:
    """Convert a value that `json` does not support: sets to sorted lists, numpy's values to lists and numbers."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=lambda each: (str(type(each)), each))
    return value.tolist() if hasattr(value, "tolist") else list(value)


def main() -> None:
    """Read one request from stdin, and write one line to stdout that starts with the request's mark."""
    request = json.loads(sys.stdin.buffer.read())
    result = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    solution = __import__("solution")
    function = getattr(solution, request["entry_point"], None)
    if function is None:  # LeetCode's form
        function = getattr(solution.Solution(), request["entry_point"])
    result.write(request["mark"] + json.dumps(function(*request["arguments"]), default=plain) + "\n")
    result.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
