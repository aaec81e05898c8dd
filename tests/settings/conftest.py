"""A working directory for configuration tests: files by name, and implementations as folders with an app.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from velodrome.errors import InputError
from velodrome.settings import Config, load

MODEL = """
policy_model:
  responses_api_models:
    fake_model:
      entrypoint: app.py
      base_url: ${policy_base_url}
      api_key: ${policy_api_key}
"""

AGENT = """
math:
  resources_servers:
    fake_math:
      entrypoint: app.py
      judge_model_server:
        type: responses_api_models
        name: policy_model
math_agent:
  responses_api_agents:
    fake_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: math
      model_server:
        type: responses_api_models
        name: policy_model
"""


class Desk:
    """A directory to load from."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, **files: str) -> None:
        """`write(env="…")` makes env.yaml."""
        for name, text in files.items():
            (self.root / f"{name}.yaml").write_text(text, encoding="utf-8")

    def load(self, *overrides: str, known: Sequence[str] = ()) -> Config:
        return load(overrides, known=known, cwd=self.root)

    def problems(self, *overrides: str, known: Sequence[str] = ()) -> list[str]:
        with pytest.raises(InputError) as caught:
            self.load(*overrides, known=known)
        return [problem.replace(str(self.root), "CWD") for problem in caught.value.problems]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An empty directory that has the implementations fake_model, fake_math and fake_agent."""
    for folder in ("responses_api_models/fake_model", "resources_servers/fake_math", "responses_api_agents/fake_agent"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "app.py").write_text("", encoding="utf-8")
    return Desk(tmp_path)


@pytest.fixture
def math(desk: Desk) -> Desk:
    """A desk with model.yaml, agent.yaml and an env.yaml that completes them."""
    desk.write(model=MODEL, agent=AGENT, env="policy_base_url: http://127.0.0.1:1/v1\npolicy_api_key: sk-very-secret\n")
    return desk
