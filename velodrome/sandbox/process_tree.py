"""All processes of a box: how many there are, and what they use together. Runs inside a sandbox."""

from __future__ import annotations

import os
import resource

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def others() -> list[int]:
    """All processes that descend from this one. In a namespace of its own, those are all others."""
    if os.getpid() == 1:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(name)
            if fields:
                parents[int(name)] = int(fields[1])
    found: list[int] = []
    last = {os.getpid()}
    while last:
        last = {pid for pid, parent in parents.items() if parent in last}
        found += last
    return found


def _stat(name: object) -> list[bytes]:
    """The fields of a process from the third on; none if it is gone."""
    try:
        with open(f"/proc/{name}/stat", "rb", 0) as file:
            return file.read(1024).rpartition(b")")[2].split()
    except OSError:
        return []


def usage() -> tuple[int, int, float]:
    """Threads, bytes of memory that no file backs, and seconds of CPU of all processes here."""
    count, memory, ticks = 0, 0, 0
    for pid in others():
        fields = _stat(pid)
        if not fields:
            continue
        count += int(fields[17])
        ticks += sum(map(int, fields[11:15]))  # its own, and that of its children that it has waited for
        try:
            with open(f"/proc/{pid}/status", "rb", 0) as file:
                for line in file.read(2048).splitlines():
                    if line.startswith((b"RssAnon", b"RssShmem")):
                        memory += int(line.split()[1]) << 10
        except OSError:
            pass
    return count, memory, ticks / CLOCK_TICKS


def cpu_used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def tasks_of_user() -> int:
    """How many threads this user runs on the whole machine."""
    count = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.geteuid():
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            pass
    return count
