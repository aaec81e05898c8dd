"""Runs with nemo-gym: one resources-server folder, served by that package, until stdin ends.

    nemo_gym_folder.py ROOT NAME CLASS

Prints the address of `ROOT/resources_servers/NAME` as one line.
"""

import asyncio
import importlib.util
import json
import os
import socket
import sys
from pathlib import Path

ROOT, NAME, CLASS = sys.argv[1:]
SOCKET = socket.create_server(("127.0.0.1", 0))
PLACE = {"host": "127.0.0.1", "port": SOCKET.getsockname()[1]}
SETTINGS = {"entrypoint": "app.py", "domain": "other", **PLACE}
os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps({NAME: {"resources_servers": {NAME: SETTINGS}}, "head_server": PLACE})

import uvicorn  # noqa: E402
from nemo_gym.config_types import BaseServerConfig  # noqa: E402
from nemo_gym.global_config import get_global_config_dict  # noqa: E402
from nemo_gym.server_utils import ServerClient  # noqa: E402


def app():
    """The app of the folder's class, as `gym env start` makes it from inside the folder."""
    folder = Path(ROOT, "resources_servers", NAME)
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("app", folder / "app.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["app"] = module
    spec.loader.exec_module(module)
    kind = getattr(module, CLASS)
    client = ServerClient(head_server_config=BaseServerConfig(**PLACE), global_config_dict=get_global_config_dict())
    config = kind.model_fields["config"].annotation(name=NAME, **SETTINGS)
    server = kind(config=config, server_client=client)
    made = server.setup_webserver()
    server.setup_liveness(made)
    server.setup_exception_middleware(made)
    return made


async def main():
    server = uvicorn.Server(uvicorn.Config(app(), log_level="error", timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve([SOCKET]))
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print(f"http://127.0.0.1:{PLACE['port']}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await running
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
