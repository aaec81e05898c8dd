"""What the children of a program use counts like its own."""

from __future__ import annotations

import asyncio

from velodrome.sandbox import Limits, Ran, Sandboxes

ONE_AFTER_THE_OTHER = """
import os, time
while True:
    child = os.fork()
    if not child:
        while time.process_time() < 0.1:
            pass
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_the_cpu_of_children_that_have_ended_counts_while_their_parent_runs() -> None:
    async def main() -> Ran:
        boxes = Sandboxes(limits=Limits(wall_s=30, cpu_s=1), warm=0)
        try:
            box = await boxes.open({"main.py": ONE_AFTER_THE_OTHER})
            return await box.run(["python3", "main.py"])
        finally:
            await boxes.aclose()

    assert asyncio.run(main()).stopped == "cpu"
