"""A digest of the source of a live object, so that a changed one is noticed on resume.

It covers the source of the object's class, and of the user's functions, classes and constants that this source
refers to. The rest of a script may change: it often sets how many rollouts are requested.
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

_CONSTANTS = (str, bytes, int, float, tuple, frozenset)  # immutable types


def code_digest(kind: Any) -> str | None:
    """The digest of a class or a function; None if it is not the user's, or its source is unavailable."""
    texts: dict[str, None] = {}
    pending, seen = [kind], set()
    while pending:
        definition = pending.pop()
        if id(definition) in seen or not _is_users(definition):
            continue
        seen.add(id(definition))
        try:
            text = dedent(inspect.getsource(definition))
        except (OSError, TypeError, SyntaxError, TokenError):  # of a class in a notebook only functions have source
            pending += filter(inspect.isfunction, vars(definition).values())
            continue
        texts[text] = None
        pending += getattr(definition, "__bases__", ())
        for name, value in _referenced_values(text, vars(sys.modules[definition.__module__])).items():
            pending.append(value)
            if isinstance(value, _CONSTANTS) and not re.search(rf"\bglobal\b.*\b{name}\b", text):
                texts[f"{name} = {_stable_text(value)}"] = None
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=8).hexdigest() if texts else None


def _referenced_values(text: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """The values of a module, and of the modules it imports, that a source text refers to."""
    values: dict[str, Any] = {}
    for name in sorted(namespace.keys() & re.findall(r"(?<![\w.])[^\W\d]\w*", text)):
        value = namespace[name]
        if isinstance(value, ModuleType):
            inside = vars(value).keys() & re.findall(rf"\b{name}\.(\w+)", text)
            values |= {each: vars(value)[each] for each in sorted(inside)}
        else:
            values[name] = value
    return values


def _stable_text(value: Any) -> str:
    """A constant as text that is the same in every process: without addresses, with sorted sets."""
    text = str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _is_users(definition: Any) -> bool:
    """Whether a function or class is in a user's file, or was defined at a prompt."""
    if not isinstance(definition, FunctionType | type) or definition.__module__ in sys.builtin_module_names:
        return False
    module = sys.modules.get(definition.__module__)
    path = getattr(module, "__file__", None)
    return module is not None and (path is None or definition.__module__ == "__main__" or is_own(path))
