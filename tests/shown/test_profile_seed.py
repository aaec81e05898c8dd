"""Seed 000 from top to bottom, command by command: its files, their columns, and the same rollouts as ever."""

from __future__ import annotations

import json
import pstats
import re
from pathlib import Path
from typing import Any

import pytest

from tests.shown.conftest import content
from tests.shown.test_served import (
    SECRET,
    head_at,
    instances,
    terminal,
)
from tests.support.running import free_port, http

SEED_000_RUN = """config_paths="responses_api_models/openai_model/configs/openai_model.yaml,\\
resources_servers/math_with_judge/configs/bytedtsinghua_dapo17k.yaml"

ng_run "+config_paths=[${config_paths}]" \\
    +profiling_enabled=true \\
    +profiling_results_dirpath=results/profiling/math_with_judge"""
SEED_000_COLLECT = """ng_collect_rollouts +agent_name=math_with_judge_simple_agent \\
    +input_jsonl_fpath=resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl \\
    +output_jsonl_fpath=temp/math_with_judge_rollouts.jsonl \\
    +limit=1024 \\
    +num_repeats=1"""
ROLLOUTS = 1024
PROFILES = "results/profiling/math_with_judge"
FUNCTIONS = ("MathWithJudge.verify", "MathWithJudge._first_verdict", "Library.check")


def served_texts(port: int) -> str:
    """What every server tells about itself."""
    addresses = [f"http://127.0.0.1:{port}", *(each["url"] for each in instances(port).values())]
    routes = ("", "health", "server_instances", "global_config_dict_yaml", "tools")
    return "\n".join(str(http(f"{address}/{route}")[1]) for address in addresses for route in routes)


def tasks(workplace: Any) -> None:
    rows = [
        {"responses_create_params": {"input": f"{n} + 1?"}, "question": f"{n} + 1?", "expected_answer": str(n % 9 + 1)}
        for n in range(1100)
    ]
    data = "resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl"
    workplace.write_rows(data, rows)


def table(text: str) -> dict[str, list[str]]:
    """The lines below the head, by name, after a look at the head."""
    head, *lines = text.partition("\n\n")[0].splitlines()
    assert re.fullmatch(r"name +ncall +tsub +ttot +tavg *", head)
    return {line.split()[0]: line.split()[1:] for line in lines}


def checked(log: dict[str, list[str]]) -> None:
    """Every function of the verifier was called once a rollout, and the columns agree."""
    for name in FUNCTIONS:
        ncall, tsub, ttot, tavg = log[name]
        assert int(ncall) == ROLLOUTS, name
        assert 0 < float(tsub) <= float(ttot), name
        assert float(tavg) == pytest.approx(float(ttot) / ROLLOUTS, abs=1e-6), name
    times = [float(line[2]) for line in log.values()]
    assert times == sorted(times, reverse=True)


@pytest.mark.slow
def test_seed_000_gives_its_files_its_columns_and_the_rollouts_it_would_give_without_profiling(workplace: Any) -> None:
    port, model_port = free_port(), free_port()
    policy = f"policy_base_url: http://127.0.0.1:{model_port}/v1\npolicy_api_key: {SECRET}\npolicy_model_name: m\n"
    workplace.model("answers: ['\\boxed{7}']")
    tasks(workplace)
    head_at(workplace, port, policy)
    run = SEED_000_RUN.replace("ng_run", "exec ng_run")
    unprofiled = run.partition(" \\\n    +profiling_enabled")[0]
    assert "profiling" not in unprofiled

    with terminal(workplace, f"velo model serve +config_paths=[model.yaml] +port={model_port}", "/v1", code=130):
        with terminal(workplace, f"bash -c '{run}'", "all ready"):
            profiled = workplace.run(SEED_000_COLLECT)
            url = instances(port)["math_with_judge"]["url"]
            current = http(f"{url}/stats")[1]
            everything = served_texts(port)
        with terminal(workplace, f"bash -c '{unprofiled}'", "all ready"):
            plain = workplace.run(SEED_000_COLLECT.replace("temp/math", "temp/plain_math"))

    assert (profiled.returncode, plain.returncode) == (0, 0), profiled.stderr + plain.stderr
    rows = workplace.rows("temp/math_with_judge_rollouts.jsonl")
    assert len(rows) == ROLLOUTS
    assert content(rows) == content(workplace.rows("temp/plain_math_with_judge_rollouts.jsonl"))
    reward = json.loads(profiled.stdout)["reward"]
    assert reward == pytest.approx(sum(row["reward"] for row in rows) / ROLLOUTS)
    assert 0 < reward < 1

    folder: Path = workplace.folder / PROFILES
    servers = ("math_with_judge", "math_with_judge_simple_agent", "policy_model")
    wanted = {f"{name}{end}" for name in servers for end in (".log", ".pstat")}
    wanted |= {f"callgrind.out.{name}" for name in servers}
    assert {path.name for path in folder.iterdir() if path.is_file()} == wanted
    log = table((folder / "math_with_judge.log").read_text())
    checked(log)
    assert float(log["MathWithJudge.verify"][2]) >= float(log["another"][3]) > 0
    checked(table(current.partition("\n\n")[2]))
    agent = table((folder / "math_with_judge_simple_agent.log").read_text())
    assert agent["SimpleAgent.run"][0] == str(ROLLOUTS)
    loaded: Any = pstats.Stats(str(folder / "math_with_judge.pstat"))
    assert {name: each[1] for (_, _, name), each in loaded.stats.items() if name in FUNCTIONS} == dict.fromkeys(
        FUNCTIONS, ROLLOUTS
    )
    assert SECRET not in everything
    for path in workplace.folder.rglob("*"):
        assert path.is_dir() or path.name == "env.yaml" or SECRET.encode() not in path.read_bytes(), path
