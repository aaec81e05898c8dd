"""The first process of a sandbox: runs programs and moves files for the host, which talks to it through its stdin.

It runs inside, from the compiled code of this module (link.py sends it), and imports little: its start is part of the
start of each box. As process 1 of its namespace it cannot be killed by the programs it runs, and as it is not
dumpable they cannot read or change it. Requests are marshalled tuples (the host is trusted); replies are numbers and
bytes, because the host trusts nothing that comes out of a box. In an unsafe box there is no namespace: the supervisor
is an ordinary process, and finds the processes of the box by their parents.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # signal itself brings enum, and that takes 2 ms
import ctypes
import marshal
import os
import resource
import select
import stat
import struct
import time

TYPE_CHECKING = False  # as typing says, which takes another 3 ms
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

REPLY = struct.Struct("<IBiBddII")  # request, kind, code, stopped, wall_s, cpu_s, bytes of the body: first part, rest
DONE, LINES = 0, 1
TIME, CPU, MEMORY, OUTPUT, DISK, PROCESSES = 1, 2, 3, 4, 5, 6
KILL, XCPU, XFSZ = 9, 24, 25
HOST = 0
INVALID = 22
TICK_S = 0.02  # between two looks at what the programs use
IDLE_S = 0.32  # the same while they use no CPU
OPEN_FILES = 256
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
RESERVED_MB = 1024  # of addresses, beyond the memory: threads reserve much that they do not use
SPARE = 16  # processes beyond the limit that can start; then the next look ends them
ALONE = os.getpid() == 1  # in a namespace of its own: every other process here is one of the box
ENVIRONMENT: dict[str, str] = {}
OWN = {"user": False}
CAPABILITIES = struct.pack("<Ii", 0x20080522, 0)  # version 3 of the call; of this process
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = READ | os.O_DIRECTORY
MOST_FILES = 20_000  # an empty file costs memory of the kernel, too
FULL = 1 << 14  # bytes: with less than this the scratch is full


class Running:
    """A program that runs: its pipes, its limits, and what it wrote so far."""

    def __init__(self, request: int, argv: list[str], stdin: bytes, limits: dict[str, Any], talks: bool) -> None:
        self.request, self.limits, self.talks = request, limits, talks
        self.stdin, self.out, self.err = memoryview(stdin), bytearray(), bytearray()
        self.sent = 0  # bytes of a talking program since it was last spoken to
        self.stopped = 0
        self.status: int | None = None
        self.started = time.monotonic()
        self.interval, self.next_look, self.cpu_seen = TICK_S, self.started + TICK_S, 0.0
        self.cpu_before = cpu_used(resource.RUSAGE_CHILDREN)
        stdin_end, self.input = os.pipe()
        self.output, stdout_end = os.pipe()
        self.errors, stderr_end = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _become(argv, (stdin_end, stdout_end, stderr_end), limits)
        for end in (stdin_end, stdout_end, stderr_end):
            os.close(end)
        for end in (self.input, self.output, self.errors):
            os.set_blocking(end, False)

    def descriptors(self) -> list[tuple[int, int]]:
        """What to wait for, and for what."""
        pairs = [(self.output, select.POLLIN), (self.errors, select.POLLIN)]
        if self.stdin:
            pairs.append((self.input, select.POLLOUT))
        return [pair for pair in pairs if pair[0] >= 0]

    def feed(self) -> None:
        try:
            self.stdin = self.stdin[os.write(self.input, self.stdin) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self.stdin = memoryview(b"")
        if not self.stdin and not self.talks:
            self.shut("input")

    def shut(self, name: str) -> None:
        end = getattr(self, name)
        if end >= 0:
            os.close(end)
            setattr(self, name, -1)

    def collect(self, name: str) -> bool:
        """Read what has come from one pipe. False if there is nothing more, now or for ever."""
        try:
            data = os.read(getattr(self, name), 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self.shut(name)
            return False
        room = self.limits["output_bytes"] - len(self.out) - len(self.err) - self.sent
        if len(data) > room:
            self.stopped = self.stopped or OUTPUT
            data = data[:room]
        if self.talks and name == "output":
            self.sent += len(data)
            send(self.request, LINES, data)
        else:
            (self.out if name == "output" else self.err).extend(data)
        return bool(room > 0)

    def finish(self) -> None:
        """End everything that runs here, and report."""
        kill_all(self)
        for name in ("output", "errors"):
            while getattr(self, name) >= 0 and self.collect(name):
                pass
        for name in ("input", "output", "errors"):
            self.shut(name)
        code = os.waitstatus_to_exitcode(self.status) if self.status is not None else -KILL
        self.stopped = self.stopped or self._reason(code)
        wall_s = time.monotonic() - self.started
        cpu_s = cpu_used(resource.RUSAGE_CHILDREN) - self.cpu_before
        send(self.request, DONE, bytes(self.out), bytes(self.err), code, self.stopped, wall_s, cpu_s)

    def _reason(self, code: int) -> int:
        """The limit that made the program end by itself, as far as that shows."""
        if code == -XCPU:
            return CPU
        if code == -XFSZ or disk_is_used_up(self.limits["disk_mb"] << 20, ALONE, at_end=True):
            return DISK
        return MEMORY if code and self.err.rstrip().endswith(b"MemoryError") else 0

    def patience_s(self) -> float:
        """How long to wait before the next look."""
        wait = self.next_look - time.monotonic()
        if not self.talks:
            wait = min(wait, self.started + self.limits["wall_s"] - time.monotonic())
        return max(0.0, wait)

    def look_soon(self) -> None:
        self.interval, self.next_look = TICK_S, time.monotonic() + TICK_S

    def watch(self) -> None:
        """Compare what all processes here use together with the limits. What does nothing is looked at less often."""
        began = time.monotonic()
        if not self.talks and began - self.started >= self.limits["wall_s"]:
            self.stopped = TIME
        elif began >= self.next_look:
            self._look()
            took = time.monotonic() - began
            self.next_look = began + max(self.interval, 5 * took)  # at most a fifth of the time

    def _look(self) -> None:
        count, memory, cpu_s = usage()
        cpu_s += cpu_used(resource.RUSAGE_CHILDREN) - self.cpu_before
        self.interval = TICK_S if cpu_s > self.cpu_seen else min(2 * self.interval, IDLE_S)
        self.cpu_seen = cpu_s
        if count > self.limits["processes"]:
            self.stopped = PROCESSES
        elif memory > self.limits["memory_mb"] << 20:
            self.stopped = MEMORY
        elif cpu_s > self.limits["cpu_s"]:
            self.stopped = CPU
        elif disk_is_used_up(self.limits["disk_mb"] << 20, ALONE, at_end=False):
            self.stopped = DISK


def _become(argv: list[str], ends: tuple[int, int, int], limits: dict[str, Any]) -> None:
    """Turn a forked child into the program."""
    try:
        os.setsid()
        os.umask(0o022)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; its programs are to start with the defaults
            signal.signal(ignored, signal.SIG_DFL)
        for number, end in enumerate(ends):
            os.dup2(end, number)
        cpu_s = int(limits["cpu_s"]) + 1
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
        _limit(resource.RLIMIT_FSIZE, limits["disk_mb"] << 20)
        _limit(resource.RLIMIT_AS, limits["memory_mb"] + RESERVED_MB << 20)
        _limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)
        if OWN["user"]:  # else the processes that the user runs elsewhere count, too
            _limit(resource.RLIMIT_NPROC, limits["processes"] + SPARE)
        elif not ALONE:
            _limit(resource.RLIMIT_NPROC, limits["processes"] + SPARE + tasks_of_user())
        os.execvpe(argv[0], argv, ENVIRONMENT)
    except (OSError, ValueError) as error:
        os.write(2, f"sandbox: cannot run {argv[0]!r}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(127)


def _limit(which: int, soft: int, hard: int | None = None) -> None:
    ceiling = resource.getrlimit(which)[1]
    wanted = soft if hard is None else hard
    hard = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(which, (min(soft, hard), hard))


def kill_all(job: Running | None = None) -> None:
    """End all processes here but this one, and wait until they are gone."""
    while True:
        for pid in [-1] if ALONE else others():
            try:
                os.kill(pid, KILL)
            except ProcessLookupError:
                pass
        try:
            while True:
                _record_exit(job, *os.waitpid(-1, 0 if ALONE else os.WNOHANG))
        except ChildProcessError:
            return
        except InterruptedError:
            pass


def _record_exit(job: Running | None, pid: int, status: int) -> None:
    if not pid:
        time.sleep(0.001)
        raise InterruptedError
    if job and pid == job.pid:
        job.status = status


def reap(job: Running) -> None:
    """Take the exit codes of those that have ended."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid == job.pid:
                job.status = status
    except ChildProcessError:
        pass


def send(
    request: int,
    kind: int,
    first: bytes = b"",
    rest: bytes = b"",
    code: int = 0,
    stopped: int = 0,
    wall_s: float = 0.0,
    cpu_s: float = 0.0,
) -> None:
    data = memoryview(REPLY.pack(request, kind, code, stopped, wall_s, cpu_s, len(first), len(rest)) + first + rest)
    while data:
        data = data[os.write(HOST, data) :]


def receive() -> Any:
    """One request of the host."""
    size = int.from_bytes(_exactly(4), "little")
    return marshal.loads(_exactly(size))


def _exactly(size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = os.read(HOST, min(size - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def handle_request(job: Running | None) -> Running | None:
    """Handle one request of the host; returns the program that runs afterwards."""
    request, what, *values = receive()
    try:
        if what == "start":
            if job is not None:
                raise OSError(16, "another program runs in this box")
            return Running(request, *values)
        if what == "tell" and job is not None:
            job.stdin, job.sent = memoryview(bytes(job.stdin) + values[0]), 0
            job.look_soon()
        elif what == "end" and job is not None:
            job.stopped = values[0]
        elif what == "write":
            write_file(*values)
            send(request, DONE)
        elif what == "read":
            send(request, DONE, read_file(*values))
        elif what == "files":
            send(request, DONE, list_files(*values))
    except (OSError, ValueError) as error:  # the latter for text that cannot be a path
        said = f"sandbox: {error}\n".encode(errors="replace")
        send(request, DONE, b"", said, 127 if what == "start" else getattr(error, "errno", None) or INVALID)
    return job


def _child_exits() -> int:
    """A descriptor that can be read when a child has ended."""
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_end


def serve() -> None:
    """Handle requests, and watch the program that runs."""
    job: Running | None = None
    children = _child_exits()
    while True:
        poll = select.poll()
        poll.register(HOST, select.POLLIN)
        poll.register(children, select.POLLIN)
        for end, events in job.descriptors() if job else ():
            poll.register(end, events)
        ready = {end for end, _ in poll.poll(1000 * job.patience_s() + 1 if job else None)}
        if HOST in ready:
            job = handle_request(job)
        if children in ready:
            os.read(children, 4096)
        if job is None:
            continue
        if job.input in ready or not (job.stdin or job.talks or job.input < 0):
            job.feed()
        for name in ("output", "errors"):
            if getattr(job, name) in ready:
                job.collect(name)
        if children in ready:
            reap(job)
        if job.status is None and not job.stopped:
            job.watch()
        if job.stopped or job.status is not None:
            job.finish()
            job = None


# The processes of the box


def others() -> list[int]:
    """The processes that descend from this one: in a separate namespace, all others."""
    if os.getpid() == 1:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(name)
            if fields:
                parents[int(name)] = int(fields[1])
    children: list[int] = []
    generation = {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        children += generation
    return children


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


# The files of the box, read and written without following a link


def _open_parent(path: str, create: bool) -> tuple[int, str]:
    """The folder of a path, opened without following links, and the name in it."""
    *folders, name = path.split("/")
    if not name or any(part in ("", ".", "..") for part in folders) or name in (".", "..") or "\0" in path:
        raise OSError(22, "not a path inside the sandbox")
    folder = os.open(".", FOLDER)
    for part in folders:
        try:
            if create:
                try:
                    os.mkdir(part, 0o755, dir_fd=folder)
                except FileExistsError:
                    pass
            inner = os.open(part, FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder, name


def write_file(path: str, data: bytes) -> None:
    folder, name = _open_parent(path, create=True)
    try:
        try:
            os.unlink(name, dir_fd=folder)  # also a link or a pipe that a program left there
        except FileNotFoundError:
            pass
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def read_file(path: str, limit: int) -> bytes:
    folder, name = _open_parent(path, create=False)
    try:
        file = os.open(name, READ, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(22, "not a regular file")
        data = bytearray()
        while len(data) < limit and (more := os.read(file, min(1 << 20, limit - len(data)))):
            data += more
        return bytes(data)
    finally:
        os.close(file)


def list_files(limit: int) -> bytes:
    """The paths of all regular files in order, each ended by a zero byte, as many as fit."""
    names = bytearray()
    for path in sorted(entry.path for entry in _entries() if entry.is_file(follow_symlinks=False)):
        if len(names) + len(path) > limit:
            break
        names += path[2:] + b"\0"
    return bytes(names)


def _entries() -> Iterator[os.DirEntry[bytes]]:
    """Everything below the scratch that is not a folder. A program may have nested these deep, or locked them."""
    todo = [b"."]
    while todo:
        try:
            with os.scandir(todo.pop()) as folder:
                for entry in folder:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        yield entry
        except OSError:
            pass


def disk_is_used_up(limit: int, alone: bool, at_end: bool) -> bool:
    """Whether there are too many files, or too many bytes in them.

    A scratch with a file system of its own (`alone`) refuses more bytes by itself: they count only at the end.
    """
    if alone:
        disk = os.statvfs(".")
        return disk.f_files - disk.f_ffree > MOST_FILES or (at_end and disk.f_bavail * disk.f_bsize < FULL)
    size = 0
    for files, entry in enumerate(_entries()):
        try:
            size += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            pass
        if files > MOST_FILES or size + FULL > limit:
            return True
    return False


# The start


def give_up_rights(scratch: str, user: int) -> None:
    """Become this user if it is not 0, for good, with no rights, and closed to other processes of the same user."""
    if user:
        os.chown(scratch, user, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        ctypes.CDLL(None).capset(CAPABILITIES, bytes(24))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def prctl(*values: Any) -> int:
    return int(ctypes.CDLL(None).prctl(*values, *[0] * (5 - len(values))))


def enter(scratch: str, user: int, environment: dict[str, str], own_user: bool) -> None:
    """Give up what this process could do and its programs must not."""
    ENVIRONMENT.update(environment)
    OWN["user"] = own_user
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # a box ends before anything of the host does
    except OSError:
        pass
    give_up_rights(scratch, user)
    if ALONE:  # else it must outlive the host for long enough to end its programs
        prctl(PR_SET_PDEATHSIG, KILL)
        os.closerange(3, 1 + max(map(int, os.listdir("/proc/self/fd"))))  # what bubblewrap was started with
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 is immune to signals it has no handler for
    os.chdir(scratch)


def main() -> None:
    enter(**receive())
    try:
        send(0, DONE)
        serve()
    except (EOFError, OSError):  # the host has closed the box, or is gone
        pass
    finally:
        kill_all()
        os._exit(0)
