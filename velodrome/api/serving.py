"""`serve`: a component over HTTP, from inside this process, for as long as a block runs.

It is served on the caller's loop. Signals are left alone, and no socket or task is left when the block ends, raises or
is cancelled.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from velodrome.api.call import public_call
from velodrome.contracts import as_agent, as_model, as_resources
from velodrome.errors import InputError
from velodrome.serving.hosting import served


@public_call
@asynccontextmanager
async def serve(
    component: Any = None,
    *,
    model: Any = None,
    agent: Any = None,
    environment: Any = None,
    name: str = "",
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> AsyncIterator[str]:
    """Serve a live agent, model or environment over HTTP; yields its URL.

    `model=` and `agent=` also take what `collect` takes for one: a function, or an object with the one method that
    matters. The component stays open: it belongs to the caller. Port 0 is any free port; a host beyond loopback needs a
    token.
    """
    components = {"model": (model, as_model), "agent": (agent, as_agent), "environment": (environment, as_resources)}
    live = [convert(thing) for thing, convert in components.values() if thing is not None]
    live += [component] if component is not None else []
    if inspect.isroutine(component):
        raise InputError(f"serve: say what {component.__name__} is: serve(model=…) or serve(agent=…)")
    if inspect.isclass(component):
        raise InputError(f"serve: expected a component, not the class {component.__name__}; make one of it first")
    if len(live) != 1:
        raise InputError("serve: give one component, or one of model=, agent= and environment=")
    original = getattr(live[0], "__wrapped__", live[0])  # of a function
    async with served(
        live[0], name=name or getattr(original, "__name__", ""), host=host, port=port, token=token
    ) as url:
        yield url
