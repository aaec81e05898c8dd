"""What the supervisor gives up before it runs anything, and its programs where there are no namespaces. Runs inside."""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38
SECCOMP_MODE_FILTER = 2
CAPABILITIES = struct.pack("<Ii", 0x20080522, 0)  # version 3 of the call; of this process


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


def confine(confined: dict[str, Any]) -> None:
    """Without namespaces: what Landlock lets this process read and write, and the system calls it has."""
    import sandlock

    try:
        sandlock.confine(sandlock.Sandbox(fs_readable=confined["readable"], fs_writable=[os.getcwd()]))
    except sandlock.SandlockError as error:
        raise OSError(1, str(error)) from None
    code = ctypes.create_string_buffer(confined["filter"])
    program = struct.pack("HxxxxxxP", len(confined["filter"]) // 8, ctypes.addressof(code))
    if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(program)):
        raise OSError(1, "no seccomp filter")


def prctl(*values: Any) -> int:
    return int(ctypes.CDLL(None).prctl(*values, *[0] * (5 - len(values))))
