"""An MCP server with the official SDK whose tools behave as a test wants: `python mcp_server.py [PID_FILE]`."""

from __future__ import annotations

import base64
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("misbehaving")
notes: list[str] = []


@server.tool()
def remember(note: str) -> int:
    """Keep a note; how many there are."""
    notes.append(note)
    return len(notes)


@server.tool(name="variables.of/it")
def variables(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "(not set)")


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """A text and an image."""
    return ["look:", Image(data=base64.b64decode("AAAA"), format="png")]


@server.tool()
def record(size: int) -> dict[str, Any]:
    """Structured content."""
    return {"text": "é" * size}


@server.tool()
def refuse() -> str:
    """Fails as a tool may."""
    raise ToolError("the moon is wrong")


@server.tool()
def die() -> str:
    """Ends the server."""
    print("out of cheese", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def hang() -> str:
    """Never answers, and ignores being told to end."""
    time.sleep(3600)
    return "never"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with Path(sys.argv[1]).open("a") as pids:
            pids.write(f"{os.getpid()}\n")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("this line is not JSON", flush=True)
    server.run()
