"""`velo env add`: an environment of another project becomes a folder here, with a config and example tasks.

The user owns the files: a class of a few lines, with its settings in the config. A server with our routes needs no
class: its block has a URL. The environment is tried before files are written. A package gets its own virtual
environment, because its pinned versions may conflict with ours.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree, which
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from velodrome.connect.adapted import AdaptedEnvironment
from velodrome.connect.nemo_gym.imports import copy_gym_folder
from velodrome.connect.open_env import OpenEnvEnvironment
from velodrome.contracts import Json
from velodrome.errors import InputError, RolloutError
from velodrome.scope import Scope
from velodrome.settings.names import FOREIGN

_MAX_REASON_CHARS = 1000
_ERRORS = ("ERROR", "error", "×")


def make_virtual_environment(folder: Path, requirements: Sequence[str], say: Callable[[str], None]) -> Path:
    """Make a virtual environment with these requirements and return its interpreter. Replaces an existing folder."""
    rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    say(f"a virtual environment in {folder} with {', '.join(requirements)}")
    _run([sys.executable, "-P", "-m", "venv", "--without-pip", str(folder)], "cannot make a virtual environment")
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in _constraints()))
    what = f"{requirements[0]} cannot be installed"
    try:
        _run([*_installer(folder), "-c", str(constraints), *requirements], what)
    except BaseException:  # also when interrupted: an incomplete environment is useless
        rmtree(folder, ignore_errors=True)
        raise
    return folder / "bin" / "python"


def _installer(folder: Path) -> list[str]:
    """The install command: uv if it is available, because it is faster, else pip of this interpreter."""
    uv_beside_python = Path(sys.executable).with_name("uv")
    uv = str(uv_beside_python) if uv_beside_python.exists() else which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--no-progress", "--python", str(folder)]
    if find_spec("pip") is None:
        raise InputError("neither uv nor pip is available: pip install uv")
    return [sys.executable, "-P", "-m", "pip", "--python", str(folder), "install", "--progress-bar", "off"]


def _constraints() -> list[str]:
    """The version of torch in this environment, if any: another may download gigabytes of CUDA."""
    try:
        return [f"torch=={metadata.version('torch').partition('+')[0]}"]
    except metadata.PackageNotFoundError:
        return []


def _run(command: Sequence[str], what: str) -> None:
    """Run a command. If it fails, raise an `InputError` with its output from the first error on."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if result.returncode:
        lines = [line.strip() for line in result.stdout.splitlines() if line.strip()]
        start = next((index for index, line in enumerate(lines) if line.startswith(_ERRORS)), -1)
        reason = (
            " ".join(line.strip("×│╰─▶ ") for line in lines[start:])[:_MAX_REASON_CHARS]
            or f"exit code {result.returncode}"
        )
        raise InputError(f"{what}: {reason}")


VENVS = Path(".velodrome") / "venvs"
_APP = '''\
"""{about}"""

from velodrome.connect.adding import settings_beside
from {module} import {base}


class {own}({base}):
    """{about}"""

    @classmethod
    def example_settings(cls):
        """Those of the config beside this file."""
        return settings_beside(__file__)
'''
_ANSWER_S = 30.0


@dataclass
class Added:
    """The parts of a new environment: settings, description, tasks, base class."""

    settings: Json
    about: str
    tasks: list[Json]
    base: str = ""  # as `module:Class`; empty for a server
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class AddRequest:
    """The arguments of `add_environment`."""

    what: str  # after the colon: a package, a URL, an id, a command
    name: str
    folder: Path
    tasks: int
    arguments: Json
    python: Path | None
    say: Callable[[str], None]


async def add_environment(
    source: str,
    *,
    name: str | None = None,
    folder: Path | None = None,
    tasks: int = 20,
    arguments: Json | None = None,
    python: Path | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Add an environment to a folder. Returns the written files, the config first."""
    kind, _, what = source.partition(":")
    if kind not in SOURCES or not what:
        raise InputError(f"{source!r:.80} is not one of {', '.join(f'{each}:…' for each in SOURCES)}")
    folder = folder or Path.cwd()
    name = name or default_name(kind, what)
    if not re.fullmatch(r"[A-Za-z_]\w{0,60}", name):
        raise InputError(f"{name!r:.80} cannot be the name of a folder; give another with --name")
    home = folder / "resources_servers" / name
    if kind == "nemo_gym" and Path(what).is_dir():
        return copy_gym_folder(Path(what), home, overwrite=overwrite)
    if home.exists() and not overwrite:
        raise InputError(f"{home} is there already; set overwrite to replace it, or give another --name")
    request = AddRequest(what, name, folder, tasks, arguments or {}, python, say)
    try:
        async with Scope():
            added = await SOURCES[kind](request)
    except RolloutError as error:
        raise InputError(str(error)) from error
    return _write_environment(home, name, source, added)


def default_name(kind: str, what: str) -> str:
    """A name from a package, a URL, an id or a command."""
    if kind == "nemo_gym" and Path(what).is_dir():
        text = Path(what).resolve().name
    elif kind in ("openenv", "nemo_gym"):
        text = urlsplit(what if "://" in what else f"//{what}").hostname or kind
        text = f"{kind}_{text}"
    elif kind == "mcp":
        words = [word for word in shlex.split(what) if not word.startswith("-")]
        text = (
            urlsplit(what).hostname or "mcp" if "://" in what else f"mcp_{Path(words[-1] if words else 'tools').stem}"
        )
    else:
        text = Path(re.split(r"[=<>~!\[@]", what)[0]).name
    return re.sub(r"\W+", "_", text).strip("_").lower() or kind


async def add_verifiers(request: AddRequest) -> Added:
    """A package of verifiers, in its own virtual environment."""
    local = Path(request.what)
    package = local.name if local.exists() else re.split(r"[=<>~!\[]", request.what)[0].strip()
    python = request.python
    if python is None:
        requirements = [str(local.resolve()) if local.exists() else request.what, "verifiers"]
        python = make_virtual_environment(request.folder / VENVS / request.name, requirements, request.say)
    settings: Json = {"adapter": "verifiers", "package": package, "python": str(python), "arguments": request.arguments}
    environment = AdaptedEnvironment(**settings)
    try:
        request.say(f"loading {package}")
        tasks = await environment.tasks(request.tasks)
    finally:
        await environment.aclose()
    if python.is_relative_to(request.folder):
        settings["python"] = str(python.relative_to(request.folder))
    about = f"{package} of verifiers, in a process and a virtual environment of its own."
    return Added(settings, about, tasks, "velodrome.connect.adapted:AdaptedEnvironment")


async def add_openenv(request: AddRequest) -> Added:
    """A server of OpenEnv, by URL."""
    settings: Json = {"openenv_url": request.what, **request.arguments}
    environment = OpenEnvEnvironment(**settings)
    try:
        session = await environment.open({})
        schema = environment._sessions[session].schema
        await environment.begin(session, {})
        await environment.close(session)
    finally:
        await environment.aclose()
    fields = {name: each for name, each in (schema.get("properties") or {}).items() if name != "metadata"}
    how = f"Each of your answers is one action, with these fields: {json.dumps(fields)}"
    tasks = [
        {
            "id": f"seed-{seed}",
            "responses_create_params": {"input": [{"role": "system", "content": how}]},
            "reset": {"seed": seed},
        }
        for seed in range(request.tasks)
    ]
    about = f"An environment that OpenEnv serves at {request.what}."
    return Added(settings, about, tasks, "velodrome.connect.open_env:OpenEnvEnvironment")


async def add_gymnasium(request: AddRequest) -> Added:
    """An environment of Gymnasium, with the class of this package."""
    try:
        import gymnasium
    except ImportError:
        raise InputError('gymnasium is not installed: pip install "velodrome[environments]"') from None
    try:
        gymnasium.spec(request.what)
    except gymnasium.error.Error as error:
        raise InputError(f"gymnasium:{request.what}: {' '.join(str(error).split())}") from None
    settings = {"env_id": request.what, **({"env_kwargs": request.arguments} if request.arguments else {})}
    await _check_gymnasium(settings)
    tasks: list[Json] = [
        {"id": f"seed-{seed}", "responses_create_params": {"input": []}, "seed": seed} for seed in range(request.tasks)
    ]
    base = "velodrome.environments.gymnasium_text.app:GymnasiumText"
    return Added(settings, f"{request.what} of Gymnasium.", tasks, base)


async def _check_gymnasium(settings: Json) -> None:
    """Make the environment once. Raises if that fails, or if its actions have no form as text."""
    from velodrome.environments.gymnasium_text.app import GymnasiumText

    environment = GymnasiumText(**settings)
    try:
        await environment.close(await environment.open({}))
    finally:
        await environment.aclose()


async def add_nemo_gym(request: AddRequest) -> Added:
    """A resources server of NeMo Gym, by URL."""
    url = request.what.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise InputError(f"nemo_gym:{url}: no such folder; give a resources-server folder, or its server as http://…")
    try:
        waits = aiohttp.ClientTimeout(total=_ANSWER_S)
        async with aiohttp.ClientSession(timeout=waits) as client, client.get(f"{url}/openapi.json") as reply:
            openapi = json.loads(await reply.read()) if reply.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise InputError(f"nemo_gym:{url}: no server answers: {error}") from None
    if "/verify" not in (openapi.get("paths") or {}):
        raise InputError(f"nemo_gym:{url}: the server has no /verify; is it a resources server?")
    note = "Tasks are those of the environment over there: NeMo Gym's own files of its data set work as they are."
    return Added({"url": url}, f"A resources server of NeMo Gym at {url}.", [], notes=[note])


async def add_mcp(request: AddRequest) -> Added:
    """An MCP server, with the environment class of this package."""
    from velodrome.environments.mcp_tools.app import McpTools

    by_url = request.what.startswith(("http://", "https://"))
    settings: Json = {"mcp_url": request.what} if by_url else {"command": request.what}
    environment = McpTools(**settings, **request.arguments)
    try:
        tools = await environment.tools()
    finally:
        await environment.aclose()
    if not tools:
        raise InputError(f"mcp:{request.what}: the server has no tools")
    names = ", ".join(each["name"] for each in tools)
    task = {
        "id": "example",
        "responses_create_params": {"input": f"Call the tool {tools[0]['name']} once and say what it answered."},
        "expected_calls": [{"name": tools[0]["name"]}],
    }
    note = (
        f"Its tools: {names}. The one task shows the form; write your own with `expected_answer` or `expected_calls`."
    )
    base = "velodrome.environments.mcp_tools.app:McpTools"
    return Added(
        {**settings, **request.arguments}, f"The tools of the MCP server {request.what}.", [task], base, [note]
    )


SOURCES: dict[str, Callable[[AddRequest], Awaitable[Added]]] = {
    "verifiers": add_verifiers,
    "openenv": add_openenv,
    "gymnasium": add_gymnasium,
    "nemo_gym": add_nemo_gym,
    "mcp": add_mcp,
}


def _write_environment(home: Path, name: str, source: str, added: Added) -> list[Path]:
    config, data, readme = home / "configs" / f"{name}.yaml", home / "data" / "example.jsonl", home / "README.md"
    files = {config: _config(name, added), readme: _readme(name, source, added)}
    if added.tasks:
        files[data] = "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in added.tasks)
    if added.base:
        module, _, base = added.base.partition(":")
        own = "".join(part.capitalize() for part in name.split("_")) or "Theirs"
        about = added.about.replace("\\", "\\\\").replace('"', "'")
        files[home / "app.py"] = _APP.format(about=about, module=module, base=base, own=own)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def _config(name: str, added: Added) -> str:
    reference = {"type": "resources_servers", "name": name}
    agent: dict[str, Any] = {
        "entrypoint": "app.py",
        "resources_server": reference,
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    if added.tasks:
        path = f"resources_servers/{name}/data/example.jsonl"
        agent["datasets"] = [{"name": "example", "type": "example", "jsonl_fpath": path}]
    about = {"entrypoint": "app.py", "domain": "other", "verified": False, "description": added.about}
    blocks = {
        name: {"resources_servers": {name: {**about, **added.settings}}},
        f"{name}_simple_agent": {"responses_api_agents": {"simple_agent": agent}},
    }
    return yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True, width=120)


def settings_beside(app: str) -> Json:
    """The settings of an environment, from the config beside its `app.py`."""
    home = Path(app).parent
    block = yaml.safe_load((home / "configs" / f"{home.name}.yaml").read_text(encoding="utf-8"))[home.name]
    settings: Json = block["resources_servers"][home.name]
    return {name: value for name, value in settings.items() if name not in FOREIGN}


def _readme(name: str, source: str, added: Added) -> str:
    path = f"resources_servers/{name}"
    notes = "".join(f"{note}\n\n" for note in added.notes)
    return (
        f"# {name}\n\n{added.about}\n\n{notes}Made by `velo env add {source}`.\n\n```bash\n"
        f'velo collect "+config_paths=[{path}/configs/{name}.yaml,model.yaml]" +agent_name={name}_simple_agent \\\n'
        f"    +input_jsonl_fpath={path}/data/example.jsonl +output_jsonl_fpath=results/{name}.jsonl\n```\n"
    )
