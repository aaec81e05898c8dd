"""Runs with nemo-gym: servers of its classes in one process, until stdin ends.

    nemo_gym_servers.py SERVERS

SERVERS is a JSON object: for each server `type`, `name`, `class` (MODULE:CLASS), its `settings`, and the folder of the
module where it is not installed. The classes are started as `gym env start` starts them in processes of their own,
without the Ray cluster, and the head lists them as it does then. Prints the address of each server by name as JSON.
"""

import asyncio
import importlib
import json
import os
import socket
import sys

SERVERS = json.loads(sys.argv[1])
SOCKETS = {name: socket.create_server(("127.0.0.1", 0)) for name in (*SERVERS, "head_server")}
PLACES = {name: {"host": "127.0.0.1", "port": sock.getsockname()[1]} for name, sock in SOCKETS.items()}
URLS = {name: f"http://127.0.0.1:{place['port']}" for name, place in PLACES.items()}
SETTINGS = {name: {"entrypoint": "app.py", **PLACES[name], **each["settings"]} for name, each in SERVERS.items()}
CONFIG = {name: {each["type"]: {each["name"]: SETTINGS[name]}} for name, each in SERVERS.items()}
os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps({**CONFIG, "head_server": PLACES["head_server"]})

import uvicorn  # noqa: E402
from nemo_gym.config_types import BaseServerConfig  # noqa: E402
from nemo_gym.global_config import get_global_config_dict  # noqa: E402
from nemo_gym.server_utils import HeadServer, ServerClient, ServerInstanceDisplayConfig  # noqa: E402


def listed(name, server):
    kind = {"server_type": server["type"], "name": server["name"], "url": URLS[name], **PLACES[name]}
    return ServerInstanceDisplayConfig(process_name=name, **kind).model_dump(mode="json")


def apps():
    head = BaseServerConfig(**PLACES["head_server"])
    client = ServerClient(head_server_config=head, global_config_dict=get_global_config_dict())
    listing = HeadServer(config=head)
    listing.set_server_instances([listed(name, each) for name, each in SERVERS.items()])
    yield "head_server", listing.setup_webserver()
    for name, each in SERVERS.items():
        module, _, kind = each["class"].partition(":")
        sys.path[:0] = [each["folder"]] if "folder" in each else []
        kind = getattr(importlib.import_module(module), kind)
        config = kind.model_fields["config"].annotation(name=name, **SETTINGS[name])
        server = kind(config=config, server_client=client)
        app = server.setup_webserver()
        server.setup_liveness(app)
        server.setup_exception_middleware(app)
        yield name, app


async def main():
    servers = {
        name: uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        for name, app in apps()
    }
    running = [asyncio.create_task(server.serve([SOCKETS[name]])) for name, server in servers.items()]
    while not all(server.started for server in servers.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print(json.dumps(URLS), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for server in servers.values():
        server.should_exit = True
    await asyncio.gather(*running)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
