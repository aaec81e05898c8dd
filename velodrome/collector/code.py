"""A digest of the code of a live object, so that a changed one is noticed on resume.

It covers what Python compiled, not the text: the functions of the object's class and of the functions and classes that
these refer to, with their defaults, annotations, and the unchangeable values (numbers, texts, tuples) they read from
their module or a closure. Lines, comments and file names are not part of it; neither is the code of this package, of
Python or of an installed package.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from velodrome.collector.runfile import lasting_text
from velodrome.errors import is_own

_EMPTY = CellType()  # equal to every cell without a value
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...))


def code_digest(kind: Any) -> str | None:
    """The digest of a class or a function; None if none of its code is the user's."""
    reader = _Reader()
    reader.read(kind)
    if not reader.seen:
        return None
    return hashlib.blake2b("\n".join(reader.parts).encode(errors="backslashreplace"), digest_size=8).hexdigest()


class _Reader:
    """Walks from a function or class to what it refers to, each once."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.seen: set[int] = set()

    def read(self, thing: Any) -> None:
        """Add a class with the user's classes below it, a function, or an unchangeable value; nothing else."""
        if inspect.isclass(thing):
            for each in thing.__mro__:
                if id(each) not in self.seen and _is_users(each):
                    self.seen.add(id(each))
                    self._class(each)
            return
        for function in _functions(thing):
            if id(function) not in self.seen and _is_users(function):
                self.seen.add(id(function))
                self._function(function)
        if _is_constant(thing):
            self.parts.append(_text(thing))

    def _class(self, owner: type) -> None:
        self.parts.append(f"class {owner.__qualname__}")
        for name, value in vars(owner).items():
            if name == "__annotations__":
                self._annotations(value)
            elif not name.startswith("__") or any(_functions(value)):
                self.parts.append(name)
                self.read(value)

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        self.parts.append(f"def {function.__name__} {_text(code)}")
        self._annotations(function.__annotations__)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.read(value)
        assigned = {each.argval for part in _codes(code) for each in dis.get_instructions(part) if _assigns(each)}
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        values = {name: cell.cell_contents for name, cell in cells if cell != _EMPTY}
        names = {name for part in _codes(code) for name in part.co_names}
        values |= {name: function.__globals__[name] for name in names if name in function.__globals__}
        for name in sorted(values.keys() - assigned):
            value = values[name]
            self.parts.append(name)
            if not isinstance(value, ModuleType):
                self.read(value)
            elif is_own(getattr(value, "__file__", None) or "<"):
                for attribute in sorted(names & vars(value).keys()):
                    self.read(vars(value)[attribute])

    def _annotations(self, annotations: dict[str, Any]) -> None:
        for name, value in annotations.items():
            self.parts.append(f"{name}: {lasting_text(value)}")


def _functions(thing: Any) -> Iterator[FunctionType]:
    """The functions that a thing is made of: itself, behind decorators, of a property or of a partial."""
    parts: tuple[Any, ...] = (thing,)
    if isinstance(thing, property):
        parts = (thing.fget, thing.fset, thing.fdel)
    elif isinstance(thing, partial | cached_property):
        parts = (thing.func,)
    for part in parts:
        inner: Callable[..., Any] | None = part
        while inner is not None:
            inner = getattr(inner, "__func__", inner)
            if isinstance(inner, FunctionType):
                yield inner
            inner = getattr(inner, "__wrapped__", None) if isinstance(inner, FunctionType) else None


def _is_users(thing: Any) -> bool:
    """Whether code was written by the user: in a file that is not installed, or at a prompt."""
    if isinstance(thing, FunctionType):
        source = thing.__code__.co_filename
        return is_own(source) or (source.startswith("<") and not source.startswith("<frozen"))
    name = str(thing.__module__)
    path = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__" or path is None:  # the file of a prompt's or a notebook's is that of its launcher, or none
        return name not in sys.builtin_module_names
    return is_own(path)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _assigns(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL")


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    return isinstance(value, _PLAIN)


def _text(value: Any) -> str:
    """A constant or a code object as text that is the same in the next process."""
    if isinstance(value, CodeType):
        consts = " ".join(map(_text, value.co_consts))
        return f"{value.co_code.hex()} {value.co_names} {value.co_varnames} {value.co_freevars} [{consts}]"
    if isinstance(value, tuple):
        return f"({' '.join(map(_text, value))})"
    if isinstance(value, frozenset):
        return f"{{{' '.join(sorted(map(_text, value)))}}}"
    return lasting_text(value)
