"""Open a box where namespaces are forbidden, as in many containers, and print what came of it.

python forbidden.py '{"allow_unsafe": false}'
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import struct
import sys

from velodrome.environments.sandbox import Sandboxes
from velodrome.environments.sandbox.seccomp import filter_program
from velodrome.errors import InputError


def forbid_namespaces() -> None:
    libc, program = ctypes.CDLL(None), filter_program()
    code = ctypes.create_string_buffer(program)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    words = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    assert libc.prctl(22, 2, ctypes.create_string_buffer(words), 0, 0) == 0  # PR_SET_SECCOMP


async def main(allow_unsafe: bool) -> dict[str, object]:
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("velodrome").addHandler(handler)
    forbid_namespaces()
    boxes = Sandboxes(warm=1, allow_unsafe=allow_unsafe)
    try:
        outputs = [(await (await boxes.open()).run(["python3", "-c", "print(6 * 7)"])).stdout for _ in range(2)]
    except InputError as error:
        return {"refused": str(error), "warnings": warnings}
    finally:
        await boxes.aclose()
    return {"backend": boxes.backend, "outputs": outputs, "warnings": warnings}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(**json.loads(sys.argv[1])))))
