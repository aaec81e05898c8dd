"""What the documentation says is there, and what is there is documented.

A page is compared with the code it describes: settings, metrics, errors, exit codes, help texts. Links resolve,
examples parse, commands name verbs and settings that exist, those of the README run, and those of the page on servers
give the answers that stand below them.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from patience import DEADLINE_S

from velodrome import errors
from velodrome.cli import collect, run, status, verify
from velodrome.cli.main import VERBS, main
from velodrome.cli.settings import Setting
from velodrome.responses_api_models.local_model.app import _SETTINGS as LOCAL
from velodrome.responses_api_models.openai_model.settings import _CHECKS as OPENAI
from velodrome.responses_api_models.scripted_model.app import SETTINGS as SCRIPTED
from velodrome.responses_api_models.scripted_model.faults import Fault
from velodrome.settings.kinds import KINDS
from velodrome.settings.overrides import parse
from velodrome.stats.metrics import Tally
from velodrome.training.overrides import apply, keys
from velodrome.training.settings import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "velodrome"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md"), *PACKAGE.rglob("README.md")])
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

_FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_ROW = re.compile(r"^\| `?([^`|]+?)`? \| ([^|]*?) ?\|", re.MULTILINE)

ALIASES = {"ng_collect_rollouts": "collect", "ng_run": "run", "ng_viewer": "view"}
# README commands that are not run: they set up an environment, or need a model server or weights that are not there.
SKIPPED = ("make", "git", "cd", "pip")
NEEDS_MODEL = ("model pull", "openai_model", "local_model")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(name: str) -> str:
    return (DOCS / name).read_text()


def prose(text: str) -> str:
    """The text without its code blocks."""
    return _FENCE.sub("", text)


def headings(text: str) -> list[str]:
    return [found[1] for found in _HEADING.findall(prose(text))]


def anchors(text: str) -> set[str]:
    """What `#…` may name, as GitHub makes them."""
    found: set[str] = set()
    for heading in headings(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def section(text: str, heading: str) -> str:
    """From a heading to the next of its level or above; what looks like a heading inside a code block is none."""
    hidden = _FENCE.sub(lambda block: re.sub("(?m)^#", " ", block.group()), text)
    found = [(len(match[1]), match[2], match.start(), match.end()) for match in _HEADING.finditer(hidden)]
    for index, (level, title, _, end) in enumerate(found):
        if title == heading:
            after = (start for other, _, start, _ in found[index + 1 :] if other <= level)
            return text[end : next(after, len(text))]
    raise AssertionError(f"no heading {heading!r}")


def rows(text: str) -> dict[str, str]:
    """The first two columns of the tables in a section, heads left out."""
    found = {name: value for name, value in _ROW.findall(prose(text)) if not name.startswith("---")}
    heads = ("setting", "key", "code", "boundary", "field", "part")
    return {name: value for name, value in found.items() if name not in heads}


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in _FENCE.findall(text) if language in languages]


def shown(default: Any) -> str | None:
    """A default as a table writes it; None where the table has words of its own."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:.15g}" if isinstance(default, int | float) else None


def check_settings(table: Sequence[Setting], documented: dict[str, str]) -> None:
    wanted = {setting.name: shown(setting.default) for setting in table}
    assert documented.keys() == {*wanted, "config_paths"}
    defaults = {name: documented[name] for name, value in wanted.items() if value is not None}
    assert defaults == {name: value for name, value in wanted.items() if value is not None}


def test_every_setting_of_collect_is_documented_with_its_default():
    check_settings(collect.SETTINGS, rows(section(read("collect.md"), "Settings")))


def test_every_setting_of_verify_is_documented_with_its_default():
    check_settings(verify.SETTINGS, rows(section(read("collect.md"), "Deferred verification")))


def test_every_setting_of_run_is_documented_with_its_default():
    check_settings(run.SETTINGS, rows(section(read("serving.md"), "Settings")))


def test_every_setting_of_training_is_documented_as_its_help_tells_it():
    page = read("training.md")
    assert runpy.run_path(str(ROOT / "scripts" / "write_settings.py"))["written"](page) == page
    assert list(rows(section(page, "Settings"))) == [key.name for key in keys(Settings())]


@pytest.fixture(scope="module")
def metric_lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What a run writes that goes through everything, and what stands for lines that somebody took out."""
    pytest.importorskip("torch")
    pytest.importorskip("numba")
    from velodrome.training.loop import train
    from velodrome.training.run.log import Log

    folder = tmp_path_factory.mktemp("train")
    given = {"env.name": "extractor_hub_10", "env.num_envs": "4", "env.agents": "2", "env.max_steps": "8"}
    given |= {"policy.hidden": "16", "trainer.batch_size": "64", "trainer.minibatch_size": "32"}
    given |= {"supervised.steps": "64", "supervised.keep_steps": "64", "supervised.keep_coef": "1"}
    given |= {"policy.core": "lstm", "trainer.mixed_precision": "true"}
    given |= {"trainer.total_timesteps": "192", "evaluator.episodes": "2", "output.dashboard": "false"}
    run = train(apply(Settings(), {**given, "output.train_dir": str(folder)}), lambda said: None)
    Log(folder / "gone.jsonl", 100).close()
    found = [*(run.folder / "metrics.jsonl").read_text().splitlines(), (folder / "gone.jsonl").read_text()]
    return [json.loads(line) for line in found]


def test_every_field_of_a_line_of_metrics_is_documented(metric_lines: list[dict[str, Any]]):
    from velodrome.training.evaluate import Evaluation

    seen = {name for line in metric_lines for name in line}
    evaluated = {*Evaluation((1.0,), (1,), 0.5, unfinished=1).as_json()}
    evaluated |= {name for line in metric_lines for name in line.get("evaluation", {})}
    told = rows(section(read("training.md"), "metrics.jsonl"))
    assert told.keys() == {*seen, *(f"evaluation.{name}" for name in evaluated)}


def test_every_part_of_an_epoch_is_documented(metric_lines: list[dict[str, Any]]):
    timed = {name for line in metric_lines for name in line.get("parts_ms", {})}
    assert rows(section(read("training.md"), "parts_ms")).keys() == timed


@pytest.mark.parametrize(
    ("heading", "keys"), [("openai_model", OPENAI), ("local_model", LOCAL), ("scripted_model", SCRIPTED)]
)
def test_every_key_of_a_model_is_documented(heading: str, keys: Sequence[str]):
    own = section(read("models.md"), heading).partition("\n### ")[0]
    assert rows(own).keys() == set(keys)


def test_every_key_of_a_scripted_fault_is_documented():
    assert rows(section(read("models.md"), "Faults")).keys() == {field.name for field in fields(Fault)}


def every_metric() -> Iterator[str]:
    """Each key that a collection can print, under the name of its heading."""
    tally = Tally()
    for repeat, reward in enumerate((0.0, 1.0, None)):
        meta: dict[str, Any] = {"key": f"a/{repeat}", "finished_at": 2.0, "timing": {"total_s": 1.0}}
        if reward is None:
            meta["verification"] = "deferred"
        row = {"reward": reward, "some_number": 3, "output": [], "usage": {"total_tokens": 1}, "meta": meta}
        tally.add({**row, "response": {"status": "incomplete"}})
    tally.add({"reward": 1.0, "output": [], "meta": {"key": "b/0"}})
    for key in tally.metrics(failed=1):
        yield "Any numeric field" if key == "some_number" else re.sub(r"pass@\d+$", "pass@k", key)


def test_every_metric_that_can_be_printed_has_a_heading_and_every_heading_is_one():
    page = headings(read("metrics.md"))
    by_group = page[page.index("By group") : page.index("Reading them")]
    apart = {"Metrics", *by_group, "Reading them"}
    assert set(page) - apart == set(every_metric())
    assert {"pass^k", "majority@k", "mean, std, min, median, max"} <= set(by_group)


def error_classes() -> list[type[errors.VelodromeError]]:
    found = [thing for _, thing in inspect.getmembers(errors, inspect.isclass)]
    return [thing for thing in found if issubclass(thing, errors.VelodromeError)]


def test_every_error_has_a_heading():
    assert {kind.__name__ for kind in error_classes()} <= set(headings(read("errors.md")))


def test_every_boundary_is_documented_with_the_error_that_carries_it():
    carried = {kind.boundary: kind.__name__ for kind in error_classes() if kind.__base__ is errors.RolloutError}
    told = rows(section(read("errors.md"), "Boundaries"))
    assert {name: re.sub(r"\[(\w+)\].*", r"\1", value) for name, value in told.items()} == carried
    assert carried.keys() == set(get_args(errors.Boundary))


@pytest.mark.parametrize("page", ["errors.md", "collect.md"])
def test_every_exit_code_is_documented(page: str):
    line = collect.HELP.partition("exit code:")[2].partition("\n\n")[0]
    assert list(rows(section(read(page), "Exit codes"))) == re.findall(r"\d+", line)


def help_of(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code = main([*words, "--help"])
    except SystemExit as ended:  # argparse ends by itself
        code = int(ended.code or 0)
    assert code == 0
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS)], ids=lambda words: " ".join(["velo", *words]))
def test_the_help_in_the_docs_is_the_help_that_is_printed(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    own = section(read("cli.md"), " ".join(["velo", *words]))
    assert blocks(own, "text")[0].strip() == help_of(words, capsys)


def test_every_verb_and_every_program_has_a_heading():
    verbs = {f"velo {verb}" for verb in VERBS}
    assert set(headings(read("cli.md"))) == {"Commands", *PROGRAMS, *verbs}


def test_the_index_leads_to_every_page():
    linked = {target.partition("#")[0] for target in _LINK.findall(read("index.md"))}
    assert linked == {"../README.md", *(page.name for page in DOCS.glob("*.md") if page.name != "index.md")}


def broken(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return True
    return bool(anchor) and (there.suffix != ".md" or anchor not in anchors(there.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_resolves(page: Path):
    targets = [target for target in _LINK.findall(prose(page.read_text())) if "://" not in target]
    assert [target for target in targets if broken(page, target)] == []


def test_every_page_that_the_code_points_to_is_there():
    mentions = {
        (str(source.relative_to(ROOT)), *mention)
        for source in PACKAGE.rglob("*.py")
        for mention in re.findall(r"docs/([\w-]+\.md)(?:#([\w-]+))?", source.read_text())
    }
    assert mentions
    assert [one for one in sorted(mentions) if broken(DOCS / "index.md", f"{one[1]}#{one[2]}")] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_example_parses(page: Path):
    text = page.read_text()
    for body in blocks(text, "json"):
        json.loads(body)
    for body in blocks(text, "yaml"):
        yaml.safe_load(body)
    for body in blocks(text, "python"):
        compile(body, name_of(page), "exec")


def command_lines(body: str) -> Iterator[str]:
    """The commands of a block, continued lines joined."""
    for line in body.replace("\\\n", " ").splitlines():
        line = line.strip().removeprefix("$ ")
        if line and not line.startswith("#"):
            yield line


def commands(text: str) -> Iterator[list[str]]:
    """Every use of ours in a page, as words: in shell blocks, after `$ ` in others, and in running text."""
    typed = [line for body in blocks(text, "bash", "sh") for line in command_lines(body)]
    for body in blocks(text, "text", ""):
        joined = body.replace("\\\n", " ").splitlines()
        typed += [line.strip()[2:] for line in joined if line.strip().startswith("$ ")]
    typed += [code for code in _CODE.findall(prose(text)) if code.startswith(("velo ", "ng_"))]
    for line in typed:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = line.split()
        if words and (words[0] == "velo" or words[0].startswith("ng_")):
            yield words


def known_settings(verb: str, rest: Sequence[str]) -> set[str] | None:
    """The settings a verb takes; None if it takes any."""
    if verb == "config":
        return None
    tables: dict[str, Sequence[Setting]] = {
        "collect": collect.SETTINGS,
        "run": run.SETTINGS,
        "status": status.SETTINGS,
        "verify": verify.SETTINGS,
        "profile": (*collect.SETTINGS, *run.SETTINGS),
    }
    found = {setting.name for setting in tables.get(verb, ())}
    if verb == "view":
        found = {"jsonl_fpath", "server_host", "server_port"}
    if verb == "model" and rest[:1] == ["serve"]:
        found = {"name", "host", "port"}
    return {*found, "config_paths"}


def mistakes(words: list[str]) -> list[str]:
    """What is wrong with a command; a word with `…` or `<` in it stands for something else."""
    program, *rest = words
    if program not in PROGRAMS:
        return [f"no program {program}"]
    verb = ALIASES.get(program) or (rest.pop(0) if rest else "--help")
    if verb.startswith(("-", "<", "…")):
        return []
    if verb not in VERBS:
        return [f"no verb {verb}"]
    known = known_settings(verb, rest)
    problems: list[str] = []
    given = [word for word in rest if word[:1] in "+~" and "…" not in word and "<" not in word]
    changes, _ = parse(given, problems)
    for change in changes:
        inside_block = len(change.path) > 1 and change.path[1] in KINDS
        if known is not None and change.path[0] not in known and not inside_block:
            problems.append(f"velo {verb} has no setting {change.path[0]}")
    return problems


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_uses_verbs_and_settings_that_exist(page: Path):
    wrong = [(words, mistakes(words)) for words in commands(page.read_text())]
    assert [(words, problems) for words, problems in wrong if problems] == []


def test_the_check_of_commands_sees_a_wrong_verb_and_a_wrong_setting():
    page = "```bash\nvelo colect +limit=1\nvelo collect \\\n  +limt=1  # why\nng_rum\n```\nand `velo verify x +limit=1`"
    served = " or `ng_run +num_worker=2`, `velo status +dev=true`"
    assert [mistakes(words) for words in commands(page + served)] == [
        ["no verb colect"],
        ["velo collect has no setting limt"],
        ["no program ng_rum"],
        [],
        ["velo run has no setting num_worker"],
        ["velo status has no setting dev"],
    ]


def runnable(line: str) -> bool:
    return line.split()[0] not in SKIPPED and not any(word in line for word in NEEDS_MODEL)


def shell(command: str, cwd: Path) -> dict[str, Any]:
    """How a command is started: in a folder, with our programs on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"args": ["bash", "-c", command], "cwd": cwd, "env": {**os.environ, "PATH": path}, "text": True}


def typed(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(**shell(command, cwd), capture_output=True, timeout=DEADLINE_S)
    assert (done.returncode, command) == (0, command), done.stderr
    return done


@contextmanager
def terminal(command: str, cwd: Path) -> Iterator[list[str]]:
    """Servers that run in a terminal of their own, from "all ready" to Ctrl-C: what they said until then."""
    process = subprocess.Popen(**shell(f"exec {command}", cwd), stderr=subprocess.PIPE)
    alarm = threading.Timer(60, process.kill)  # ends the reading below
    alarm.start()
    said: list[str] = []
    with process:
        try:
            assert process.stderr is not None
            while not said or "all ready" not in said[-1]:
                said.append(process.stderr.readline().rstrip())
                assert said[-1], said
            alarm.cancel()
            yield said
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 0
        finally:
            alarm.cancel()
            process.kill()


def free_port(wanted: int = 0) -> int:
    """This port, or any if it is taken."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", wanted))
        except OSError:
            sock.bind(("127.0.0.1", 0))
        found: int = sock.getsockname()[1]
        return found


def test_the_commands_of_the_readme_run(tmp_path: Path):
    (tmp_path / "env.yaml").write_text(f"head_server: {{port: {free_port()}}}\n")
    for body in blocks((ROOT / "README.md").read_text(), "bash"):
        with ExitStack() as terminals:
            for line in filter(runnable, command_lines(body)):
                if line.startswith(("ng_run", "velo run")):
                    terminals.enter_context(terminal(line, tmp_path))
                else:
                    typed(line, tmp_path)


def fits(answer: Any, told: Any) -> bool:
    """Whether an answer is what the page tells; `…` there stands for anything, as a key for any others."""
    if told == "…":
        return True
    if isinstance(told, dict) and isinstance(answer, dict):
        names = told.keys() - {"…"}
        same = names <= answer.keys() if "…" in told else names == answer.keys()
        return same and all(fits(answer[name], told[name]) for name in names)
    if isinstance(told, list) and isinstance(answer, list):
        return len(told) == len(answer) and all(map(fits, answer, told))
    return bool(answer == told)


def reads(answer: str, told: str) -> bool:
    """The same for text."""
    return re.fullmatch(re.escape(told.strip()).replace("…", ".*"), answer.strip()) is not None


def test_an_answer_that_is_not_the_one_on_the_page_is_seen():
    assert fits({"a": 1, "b": [2, 3]}, {"a": "…", "b": [2, "…"]})
    assert fits({"a": 1, "b": 2}, {"b": 2, "…": "…"})
    assert not fits({"a": 1, "b": 2}, {"b": 2})
    assert not fits({"b": 2}, {"a": "…", "…": "…"})
    assert not fits([1, 2], ["…"])
    assert reads("id 7 (ok)\n", "id … (ok)")
    assert not reads("id 7 (bad)", "id … (ok)")


def moved(page: str, cwd: Path) -> str:
    """The page with other ports, wherever they stand, if its own are taken here."""
    ports = {port: free_port(port) for port in range(11000, 11005)}
    if ports[11000] != 11000:
        (cwd / "env.yaml").write_text(f"head_server: {{port: {ports[11000]}}}\n")
    return re.sub(r"\b1100[0-4]\b", lambda port: str(ports[int(port.group())]), page)


@pytest.mark.slow
def test_the_page_on_servers_does_as_it_says(tmp_path: Path):
    page = moved(read("serving.md"), tmp_path)
    start = section(page, "Two terminals")
    (tmp_path / "servers.yaml").write_text(blocks(start, "yaml")[0])
    serve, collect_rollouts = blocks(start, "bash")
    told, account = blocks(start, "text")
    with terminal(serve, tmp_path) as said:
        timeless = [sorted(re.sub(r"\d+\.\d s", "", line) for line in lines) for lines in (said, told.splitlines())]
        assert timeless[0] == timeless[1]
        assert set(account.splitlines()) <= set(typed(collect_rollouts, tmp_path).stderr.splitlines())
        table = blocks(section(page, "Status and the head"), "text")[0]
        columns = [
            [line.split()[:4] for line in text.splitlines()] for text in (typed("velo status", tmp_path).stdout, table)
        ]
        assert columns[0] == columns[1]
        asked = 0
        for (language, body), (kind, answer) in pairwise(_FENCE.findall(page)):
            if language == "bash" and body.startswith("curl"):
                given = typed(body, tmp_path).stdout
            elif language == "python":
                given = typed(f"{sys.executable} - <<'END'\n{body}\nEND", tmp_path).stdout
            else:
                continue
            asked += 1
            if kind == "json":
                assert fits(json.loads(given), json.loads(answer)), given
            elif kind == "text":
                assert reads(given, answer), given
        assert asked >= 15
