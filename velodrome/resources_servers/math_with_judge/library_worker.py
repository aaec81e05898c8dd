"""One process that runs math-verify: a JSON line in on stdin, a JSON line out on stdout.

It is started by path, imports nothing of velodrome, and cannot outlive its use: the end of stdin ends it, a timer of
the kernel's ends a computation that takes too much CPU time, and its memory is bounded. Whatever else it prints goes to
stderr.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from queue import SimpleQueue
from typing import Any, BinaryIO

MAX_MEMORY_BYTES = 4 << 30
MAX_EXTRACTED = 500


def read_lines(source: BinaryIO, lines: SimpleQueue[bytes]) -> None:
    """Hand over lines until the parent goes; then this process is of no use, whatever it is computing."""
    for line in source:
        lines.put(line)
    os._exit(0)


def compare(expected: str, text: str) -> dict[str, Any]:
    """math-verify's verdict on one answer."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    kinds = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    gold = parse(expected if "$" in expected else f"${expected}$", kinds, parsing_timeout=None)
    parsed = parse(text, kinds, parsing_timeout=None)
    right = verify(gold, parsed, timeout_seconds=None)
    return {"right": bool(right), "extracted": str(parsed[-1])[:MAX_EXTRACTED] if parsed else None}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the collector, which drains first
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, which tells the parent why
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    except (ValueError, OSError):  # a lower limit is in force, or the system has none
        pass
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=read_lines, args=(sys.stdin.buffer, lines), daemon=True).start()
    compare("1", r"\boxed{1}")  # everything is imported and warm before the first clock starts
    answers.write(b"ready\n")
    while True:
        request = json.loads(lines.get())
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        answer = compare(request["expected"], request["text"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer["cpu_s"] = time.process_time() - began
        answers.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
