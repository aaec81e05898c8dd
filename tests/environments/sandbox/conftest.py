"""An interpreter that every user can read, and a host with things that nobody in a sandbox may reach."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.people import OpenInterpreter

if sys.platform != "linux":
    collect_ignore_glob = ["test_*"]


@pytest.fixture(scope="session")
def interpreter() -> Iterator[OpenInterpreter]:
    with tempfile.TemporaryDirectory(prefix="velodrome-test-") as folder:
        os.chmod(folder, 0o755)
        yield OpenInterpreter(Path(folder) / "python")


@pytest.fixture(scope="session")
def host() -> Iterator[dict[str, Any]]:
    """Servers, files and a process, open to all users of this machine; `hostile.py` tries to reach them."""
    with (
        tempfile.TemporaryDirectory(prefix="velodrome-test-") as folder,
        tempfile.NamedTemporaryFile("w", dir="/dev/shm") as shm,
    ):
        os.chmod(folder, 0o755)
        shm.write("secret")
        shm.flush()
        os.chmod(shm.name, 0o644)
        open_folder = Path(folder, "open")
        open_folder.mkdir()
        open_folder.chmod(0o777)
        path, abstract = f"{folder}/socket", f"velodrome-test-{os.getpid()}"
        servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        servers[1].bind(("127.0.0.1", 0))
        for address in (path, f"\0{abstract}"):
            servers.append(socket.socket(socket.AF_UNIX))
            servers[-1].bind(address)
            servers[-1].listen(100)
        os.chmod(path, 0o777)
        threading.Thread(target=_greet, args=(servers[0],), daemon=True).start()
        threading.Thread(target=_echo, args=(servers[1],), daemon=True).start()
        yield {
            "tcp": servers[0].getsockname()[1],
            "udp": servers[1].getsockname()[1],
            "unix": path,
            "abstract": abstract,
            "open_folder": str(open_folder),
            "shm": shm.name,
        }
        servers[1].sendto(b"", servers[1].getsockname())
        servers[0].shutdown(socket.SHUT_RDWR)
        for server in servers:
            server.close()


def _greet(server: socket.socket) -> None:
    while True:
        try:
            link, _ = server.accept()
        except OSError:
            return
        with link:
            link.sendall(b"hello")


def _echo(server: socket.socket) -> None:
    while True:
        data, sender = server.recvfrom(100)
        if not data:
            return
        server.sendto(data, sender)
