"""The system calls that no program in a sandbox gets, as a classic BPF program for the kernel.

Most calls are needed by some program; these are needed by none and reach deep into the kernel, or around the limits:
namespaces, mounts, other processes, keys, and memory that no limit counts.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NAMESPACES = 0x7E020080  # CLONE_NEW*: time, mount, cgroup, uts, ipc, user, pid, net
_X32 = 0x40000000
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6; AF_VSOCK, for one, is not cut off by a network namespace

# name: number on x86_64, number on aarch64 (None: there is no such call)
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "quotactl": (179, 60),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "syslog": (103, 116),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


@cache
def filter_program() -> bytes:
    """The filter for this machine; b"" if its system calls are not listed here."""
    known = _MACHINES.get(platform.machine())
    return b"".join(_instructions(*known)) if known else b""


def _instructions(column: int, arch: int) -> list[bytes]:
    denied = [numbers[column] for numbers in _DENIED.values() if numbers[column] is not None]
    program = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, arch, then=1),
        _step(_RETURN, _KILL),  # calls of another architecture have other numbers
        _step(_LOAD, _NUMBER),
        *([_step(_AT_LEAST, _X32, otherwise=1), _fails(errno.ENOSYS)] if column == 0 else []),
        _step(_EQUAL, _CLONE3[column], otherwise=1),
        _fails(errno.ENOSYS),  # its flags are behind a pointer; the C library then uses clone
    ]
    for number in denied:
        program += [_step(_EQUAL, number or 0, otherwise=1), _fails(errno.EPERM)]
    return [
        *program,
        _step(_EQUAL, _CLONE[column], otherwise=4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _NAMESPACES, otherwise=1),
        _fails(errno.EPERM),
        _step(_RETURN, _ALLOW),
        _step(_EQUAL, _SOCKET[column], otherwise=len(_FAMILIES) + 2),
        _step(_LOAD, _FIRST_ARGUMENT),
        *(_step(_EQUAL, family, then=len(_FAMILIES) - place) for place, family in enumerate(_FAMILIES)),
        _fails(errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    ]


def _fails(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; `then` and `otherwise` are how many of the following ones a comparison skips."""
    return struct.pack("<HBBI", code, then, otherwise, value)
