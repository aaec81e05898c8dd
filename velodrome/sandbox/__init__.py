"""A sandbox for code that a model wrote: no network, nothing of the host but the interpreter, limits on everything."""

from velodrome.errors import SandboxEnded
from velodrome.sandbox.allowed import Limits, Ran
from velodrome.sandbox.box import BoxProgram, Sandbox
from velodrome.sandbox.pool import Sandboxes

__all__ = ["BoxProgram", "Limits", "Ran", "Sandbox", "SandboxEnded", "Sandboxes"]
