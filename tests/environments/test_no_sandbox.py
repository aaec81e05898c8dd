"""Where no sandbox works, the environments that need one say so before a model is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE_S
from velodrome.environments import __path__ as environments

pytestmark = pytest.mark.slow
VELO = Path(__file__).parent / "sandbox" / "velo_forbidden.py"


@pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")
def test_a_run_without_a_sandbox_ends_with_one_line_before_a_model_is_asked(tmp_path: Path):
    name = "terminal"
    folder = Path(environments[0]) / name
    model = folder.parent.parent / "responses_api_models/scripted_model/configs/scripted_model.yaml"
    words = [
        "collect",
        f"+config_paths=[{folder}/configs/{name}.yaml,{model}]",
        f"+agent_name={name}_simple_agent",
        f"+input_jsonl_fpath={folder}/data/example.jsonl",
        "+output_jsonl_fpath=rollouts.jsonl",
        "+embedded=true",
    ]
    env = os.environ | {"PYTHONPATH": str(VELO.parent)}
    ended = subprocess.run(
        [sys.executable, VELO, *words],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 2
    *progress, last = ended.stderr.splitlines()
    assert "allow_unsafe=true" in last
    assert [line for line in progress if not line.startswith("Collecting rollouts: 0/")] == []
    assert (tmp_path / "rollouts.jsonl").read_bytes() == b""
