"""A digest of the source of a live object, so that a changed one is noticed on resume.

It covers the text of the object's class, and of the user's functions, classes and constants that this text names,
wherever they are defined. The rest of a script may change: it often says how many rollouts are requested.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from textwrap import dedent
from tokenize import TokenError
from types import FunctionType, ModuleType
from typing import Any

from velodrome.errors import is_own

_CONSTANTS = (str, bytes, int, float, tuple, frozenset)  # what cannot change while the program runs


def code_digest(kind: Any) -> str | None:
    """The digest of a class or a function; None if it is not the user's, or its source is not known."""
    texts: dict[str, None] = {}
    waiting, seen = [kind], set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or not _is_users(thing):
            continue
        seen.add(id(thing))
        try:
            text = dedent(inspect.getsource(thing))
        except (OSError, TypeError, SyntaxError, TokenError):  # of a class in a notebook only the functions are known
            waiting += filter(inspect.isfunction, vars(thing).values())
            continue
        texts[text] = None
        waiting += getattr(thing, "__bases__", ())
        for name, value in _named(text, vars(sys.modules[thing.__module__])).items():
            waiting.append(value)
            if isinstance(value, _CONSTANTS) and not re.search(rf"\bglobal\b.*\b{name}\b", text):
                texts[f"{name} = {_lasting(value)}"] = None
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=8).hexdigest() if texts else None


def _named(text: str, known: dict[str, Any]) -> dict[str, Any]:
    """The values of a module, and of the modules imported there, that a source text names."""
    named: dict[str, Any] = {}
    for name in sorted(known.keys() & re.findall(r"(?<![\w.])[^\W\d]\w*", text)):
        value = known[name]
        if isinstance(value, ModuleType):
            inside = vars(value).keys() & re.findall(rf"\b{name}\.(\w+)", text)
            named |= {each: vars(value)[each] for each in sorted(inside)}
        else:
            named[name] = value
    return named


def _lasting(value: Any) -> str:
    """A constant as text that is the same in every process: without addresses, with sets in order."""
    text = str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _is_users(thing: Any) -> bool:
    """Whether a function or class is in a file of the user's, or was written at a prompt."""
    if not isinstance(thing, FunctionType | type) or thing.__module__ in sys.builtin_module_names:
        return False
    module = sys.modules.get(thing.__module__)
    path = getattr(module, "__file__", None)
    return module is not None and (path is None or thing.__module__ == "__main__" or is_own(path))
