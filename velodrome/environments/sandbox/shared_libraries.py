"""Which shared libraries programs need, read from their ELF headers: a process per program (ldd) would take seconds."""

from __future__ import annotations

import os
import struct
import sysconfig
from typing import NamedTuple

_HEADER = struct.Struct("<4sBB26xQ14xHH")  # magic, class, byte order; offset, size and number of the segments
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _DYNAMIC, _LOADER = 1, 2, 3
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29
_LATE = "libgcc_s.so.1"  # the C library loads it when a thread ends


class _Wanted(NamedTuple):
    loader: str
    names: list[str]
    folders: list[str]


def shared_libraries(files: list[str]) -> dict[str, str]:
    """The libraries that these programs and libraries need, and those that these need: path by name."""
    libraries: dict[str, str] = {}
    todo = [(path, _Wanted("", [_LATE], [])) for path in files[:1]] + [(path, _wanted(path)) for path in files]
    while todo:
        path, wanted = todo.pop()
        if wanted.loader:
            libraries[os.path.basename(wanted.loader)] = os.path.realpath(wanted.loader)
        origin = os.path.dirname(path)
        folders = [folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in wanted.folders]
        for name in wanted.names:
            if name not in libraries and (place := _search(name, _folders(files[0], folders))):
                libraries[name] = os.path.realpath(place)
                todo.append((libraries[name], _wanted(libraries[name])))
    return libraries


def _folders(program: str, named: list[str]) -> list[str]:
    """Where libraries are looked for: where the user says, where the file says, beside the program, in the system."""
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    set_by_user = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    beside = os.path.join(os.path.dirname(os.path.dirname(program)), "lib")
    system = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"]
    return [*set_by_user, *named, beside, f"/lib/{triplet}", f"/usr/lib/{triplet}", *system]


def _search(name: str, folders: list[str]) -> str | None:
    return next((path for folder in folders if os.path.isfile(path := os.path.join(folder, name))), None)


def _wanted(path: str) -> _Wanted:
    """What one file asks the dynamic loader for."""
    with open(path, "rb") as file:
        data = file.read()
    nothing = _Wanted("", [], [])
    if len(data) < _HEADER.size or not data.startswith(b"\x7fELF\x02\x01"):  # 64 bits, little-endian
        return nothing
    *_, offset, size, count = _HEADER.unpack_from(data)
    segments = [_SEGMENT.unpack_from(data, offset + place * size) for place in range(count)]
    dynamic = next((segment for segment in segments if segment[0] == _DYNAMIC), None)
    loader = next((data[s[2] : s[2] + s[5] - 1].decode() for s in segments if s[0] == _LOADER), "")
    if dynamic is None:
        return nothing
    entries = list(struct.iter_unpack("<qQ", data[dynamic[2] : dynamic[2] + dynamic[5] // 16 * 16]))
    address = next((value for tag, value in entries if tag == _STRINGS), 0)
    start = next((s[2] + address - s[3] for s in segments if s[0] == _LOAD and s[3] <= address < s[3] + s[5]), 0)

    def text(place: int) -> str:
        return data[start + place : data.index(b"\0", start + place)].decode()

    names = [text(value) for tag, value in entries if tag == _NEEDED]
    paths = [text(value) for tag, value in entries if tag in (_RPATH, _RUNPATH)]
    return _Wanted(loader, names, [folder for path in paths for folder in path.split(":") if folder])
