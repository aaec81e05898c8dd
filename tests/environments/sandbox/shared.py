"""What two boxes and the host share, and print it: each fact is tried, not read from a list.

python shared.py '{"backend": "bubblewrap"}'
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from pathlib import Path

from velodrome.environments.sandbox import Limits, Sandboxes

# It answers each line of its input with a line of JSON.
PROGRAM = """
import ctypes, fcntl, json, os, select, sys
libc, module = ctypes.CDLL(None, use_errno=True), os.__file__

def attempt(act):
    try:
        return act()
    except OSError:
        return False

def lock(path=module):
    held.append(open(path))
    fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True

def watch():
    watched.append(libc.inotify_init1(0))
    return libc.inotify_add_watch(watched[-1], module.encode(), 0xFFF) >= 0

def reads(path):
    return bool(open(path).read())

held, watched = [], []
acts = {
    "inode": lambda: [os.stat(module).st_dev, os.stat(module).st_ino],
    "host_paths": lambda: [line.split()[3] for line in open("/proc/self/mountinfo")],
    "lock": lock,
    "watch": watch,
    "events": lambda: bool(select.select(watched, [], [], 5)[0]),
    "disk": lambda: os.statvfs(module).f_blocks,
    "touch": lambda: os.utime("/dev/null"),
    "load": lambda: reads("/proc/loadavg"),
    "disks": lambda: reads("/proc/diskstats"),
    "boot": lambda: open("/proc/sys/kernel/random/boot_id").read(),
    "passwords": lambda: reads("/etc/passwd"),
}
for line in sys.stdin:
    print(json.dumps(attempt(acts[line.strip()])), flush=True)
"""


def can_lock(path: str) -> bool:
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


async def main(backend: str) -> dict[str, object]:
    boxes = Sandboxes(Limits(wall_s=60), warm=0, backend=backend)
    programs = [await (await boxes.open({"main.py": PROGRAM})).start(["python3", "main.py"]) for _ in range(2)]

    async def ask(at: int, what: str) -> object:
        return json.loads(await programs[at].ask(f"{what}\n".encode(), timeout_s=60))

    ours, module = [os.stat(os.__file__).st_dev, os.stat(os.__file__).st_ino], os.__file__
    seen: dict[str, object] = {"the inode of a library": await ask(0, "inode") == ours}
    paths = await ask(0, "host_paths")
    seen["paths of the host"] = isinstance(paths, list) and any(module.startswith(f"{path}/") for path in paths)
    locked, refused = await ask(0, "lock"), not await ask(1, "lock")
    seen["a lock of another box"] = locked and refused
    seen["on the host, a lock of a box"] = not can_lock(module)
    watched = await ask(0, "watch")
    Path(module).read_text()
    seen["that the host reads a library"] = watched and await ask(0, "events")
    seen["the size of the host's disk"] = await ask(0, "disk") == os.statvfs(module).f_blocks
    seen["the load"], seen["statistics of disks"] = await ask(0, "load"), await ask(0, "disks")
    seen["the boot id"] = await ask(0, "boot") == Path("/proc/sys/kernel/random/boot_id").read_text()
    before = os.stat("/dev/null").st_mtime_ns
    await ask(0, "touch")
    seen["on the host, when a box touched /dev/null"] = os.stat("/dev/null").st_mtime_ns != before
    seen["users"] = await ask(0, "passwords")
    await boxes.aclose()
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(**json.loads(sys.argv[1])))))
