"""Run many hostile programs in boxes, and print what is left afterwards: processes, mounts, files, descriptors.

python remains.py '{"backend": "bubblewrap", "count": 500}'
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import sys
import tempfile
from collections import Counter

from velodrome.environments.sandbox import Limits, SandboxEnded, Sandboxes
from velodrome.environments.sandbox.inside import others

PR_SET_CHILD_SUBREAPER = 36
LIMITS = Limits(wall_s=0.2, cpu_s=0.2, memory_mb=128, processes=8, output_bytes=1 << 16, disk_mb=4)
PROGRAMS = [
    "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "import os, time\nfor _ in range(3):\n  if not os.fork(): os.setsid(); os.fork(); time.sleep(999)",
    "import signal, time\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(999)",
    "while True: print('x' * 9999)",
    "b = bytearray(10 << 30)",
    "b = []\nwhile True: b.append(b'x' * (1 << 20))",
    "while True: pass",
    "import os\nos.makedirs('a/b/c'); os.symlink('/', 'root'); os.chmod('a/b', 0); os.chmod('a', 0)",
    "import socket\ns = socket.socketpair()\nopen('/dev/shm/left', 'w').close()\nopen('/tmp/left', 'w').close()",
    "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(-1, signal.SIGKILL)",
    "open('f', 'wb').write(b'x' * (9 << 20))",
    "import ctypes\nctypes.string_at(0)",
    "import os\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')",
]


def state() -> dict[str, object]:
    """What this process and its descendants hold of the host."""
    gc.collect()
    reap()
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = len(file.readlines())
    folders = ["/dev/shm", tempfile.gettempdir()]
    left = sorted(
        name for folder in folders for name in os.listdir(folder) if name.startswith(("velodrome-box", "left"))
    )
    return {
        "processes": len(others()),
        "mounts": mounts,
        "files": left,
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def reap() -> None:
    """Bury those whose parents are gone, as the first process of the machine would."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


async def run(backend: str, count: int) -> Counter[str]:
    boxes = Sandboxes(LIMITS, warm=2, backend=backend)
    queue, ends = iter(range(count)), Counter[str]()

    async def worker() -> None:
        for number in queue:
            code = PROGRAMS[number % len(PROGRAMS)]
            box = await boxes.open({"main.py": code})
            try:
                ends[(await box.run(["python3", "main.py"])).stopped] += 1
                if number % 2:
                    program = await box.start(["python3", "main.py"])
                    await program.ask(b"x\n", timeout_s=0.05)
            except SandboxEnded:
                pass
            if number % 5:  # the others are closed with all the rest
                await box.close()

    await asyncio.gather(*(worker() for _ in range(8)))
    await boxes.aclose()
    return ends


async def main(backend: str, count: int) -> dict[str, object]:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whatever loses its parent becomes a child of this
    await run(backend, 1)  # what is opened once and kept
    before = state()
    ends = await run(backend, count)
    return {"before": before, "after": state(), "ends": ends}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(**json.loads(sys.argv[1])))))
