"""A sandbox for code that a model wrote: no network, nothing of the host but the interpreter, limits on everything."""

from velodrome.environments.sandbox.box import BoxProgram, Sandbox
from velodrome.environments.sandbox.link import Limits, Ran
from velodrome.environments.sandbox.pool import Sandboxes
from velodrome.errors import SandboxEnded

__all__ = ["BoxProgram", "Limits", "Ran", "Sandbox", "SandboxEnded", "Sandboxes"]
