"""A configuration that only scores needs no model, unless an environment asks one."""

from __future__ import annotations

from pathlib import Path

import pytest

from velodrome.errors import InputError
from velodrome.settings import Config, load

AGENT = """
env:
  resources_servers:
    calculator: {JUDGE}
solo:
  responses_api_agents:
    simple_agent:
      resources_server: {type: resources_servers, name: env}
      model_server: {type: responses_api_models, name: policy_model}
"""
JUDGED = "{judge_model: {type: responses_api_models, name: NAME}}"
MODELS = """
policy_model:
  responses_api_models:
    openai_model: {base_url: "${nowhere}", model: m}
judge:
  responses_api_models:
    scripted_model: {answers: ["${policy_word}"]}
"""


def loaded(folder: Path, judge: str, *files: str, scoring: bool = True, more: tuple[str, ...] = ()) -> Config:
    texts = {"agent.yaml": AGENT.replace("{JUDGE}", judge), "models.yaml": MODELS}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return load([f"+config_paths=[{','.join(files)}]", *more], cwd=folder, scoring=scoring)


def test_an_agent_whose_model_nobody_defines_is_enough_to_score(tmp_path: Path):
    config = loaded(tmp_path, "{}", "agent.yaml")
    assert list(config.instances) == ["env", "solo"]
    assert config.instances["solo"].references() == {"resources_server": "env"}
    assert list(loaded(tmp_path, "{}", "agent.yaml", "models.yaml").instances) == ["env", "solo"]  # half written
    with pytest.raises(InputError, match='refers to "policy_model", which no file defines'):
        loaded(tmp_path, "{}", "agent.yaml", scoring=False)


def test_the_model_an_environment_asks_is_kept_and_checked_however_it_is_named(tmp_path: Path):
    judged = JUDGED.replace("NAME", "judge")
    config = loaded(tmp_path, judged, "agent.yaml", "models.yaml", more=("+policy_word=yes",))
    assert sorted(config.instances) == ["env", "judge", "solo"]
    assert config.instances["judge"].settings == {"answers": ["yes"]}
    named = JUDGED.replace("NAME", '"${who}"')
    used = '{word: "${judge.responses_api_models.scripted_model.answers.0}"}'
    words = ("+policy_word=yes", "+who=judge", "+nowhere=http://127.0.0.1:1")
    by_name = loaded(tmp_path, named, "agent.yaml", "models.yaml", more=words)
    assert by_name.instances["env"].references() == {"judge_model": "judge"}
    by_value = loaded(tmp_path, used, "agent.yaml", "models.yaml", more=words[:1])
    assert by_value.instances["env"].settings == {"word": "yes"}
    with pytest.raises(InputError, match="policy_word"):
        loaded(tmp_path, judged, "agent.yaml", "models.yaml")
    with pytest.raises(InputError, match='refers to "judge", which no file defines'):
        loaded(tmp_path, judged, "agent.yaml")
