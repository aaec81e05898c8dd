"""Runs with nemo-gym: its counter environment, its agent and its model server, in one process, until stdin ends.

    nemo_gym_servers.py MODEL_URL

The classes are started as `gym env start` starts them in processes of their own, without the Ray cluster, and the head
lists them as it does then. Prints one line of JSON: the address of each server by name.
"""

import asyncio
import json
import os
import socket
import sys

MODEL = sys.argv[1]
SOCKETS = {name: socket.create_server(("127.0.0.1", 0)) for name in ("environment", "agent", "model", "head_server")}
PLACES = {name: {"host": "127.0.0.1", "port": sock.getsockname()[1]} for name, sock in SOCKETS.items()}
ENVIRONMENT = {"type": "resources_servers", "name": "environment"}
ANSWERING = {"type": "responses_api_models", "name": "model"}
OWN = {
    "environment": {"domain": "agent"},
    "agent": {"resources_server": ENVIRONMENT, "model_server": ANSWERING, "max_steps": 6},
    "model": {"openai_base_url": MODEL, "openai_api_key": "none", "openai_model": "scripted"},
}
KINDS = {
    "environment": ("resources_servers", "example_session_state_mgmt"),
    "agent": ("responses_api_agents", "simple_agent"),
    "model": ("responses_api_models", "openai_model"),
}
SETTINGS = {name: {"entrypoint": "app.py", **PLACES[name], **own} for name, own in OWN.items()}
CONFIG = {name: {kind: {form: SETTINGS[name]}} for name, (kind, form) in KINDS.items()}
os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps({**CONFIG, "head_server": PLACES["head_server"]})

import uvicorn  # noqa: E402
from nemo_gym.config_types import BaseServerConfig  # noqa: E402
from nemo_gym.global_config import get_global_config_dict  # noqa: E402
from nemo_gym.server_utils import HeadServer, ServerClient, ServerInstanceDisplayConfig  # noqa: E402
from resources_servers.example_session_state_mgmt.app import StatefulCounterResourcesServer  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent  # noqa: E402
from responses_api_models.openai_model.app import SimpleModelServer  # noqa: E402


def listed(name, kind, form):
    url = f"http://127.0.0.1:{PLACES[name]['port']}"
    entry = ServerInstanceDisplayConfig(process_name=name, server_type=kind, name=form, url=url, **PLACES[name])
    return entry.model_dump(mode="json")


def apps():
    head = BaseServerConfig(**PLACES["head_server"])
    client = ServerClient(head_server_config=head, global_config_dict=get_global_config_dict())
    listing = HeadServer(config=head)
    listing.set_server_instances([listed(name, *kind) for name, kind in KINDS.items()])
    yield "head_server", listing.setup_webserver()
    classes = {"environment": StatefulCounterResourcesServer, "agent": SimpleAgent, "model": SimpleModelServer}
    for name, kind in classes.items():
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
    print(json.dumps({name: f"http://127.0.0.1:{place['port']}" for name, place in PLACES.items()}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for server in servers.values():
        server.should_exit = True
    await asyncio.gather(*running)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
