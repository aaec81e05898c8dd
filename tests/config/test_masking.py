"""Secrets are masked wherever they stand, and nothing else is."""

from __future__ import annotations

import pytest

from velodrome.config import is_secret_key, mask, mask_text, secrets

FILES = "+config_paths=[model.yaml,agent.yaml]"


@pytest.mark.parametrize(
    "key",
    ["api_key", "policy_api_key", "apiKey", "x-api-key", "token", "hf_token", "accessToken", "client_secret",
     "password", "db_passwd", "Authorization", "credentials", "aws_secret_access_key", "private_key", "bearer_token",
     "Cookie", "Ocp-Apim-Subscription-Key", "X-Auth"],
)  # fmt: skip
def test_these_keys_hold_secrets(key):
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    ["max_tokens", "total_tokens", "max_output_tokens", "tokens", "tokenizer", "eos_token_id", "token_ids",
     "stop_token", "name", "key", "keys", "max_total_tokens", "token_count", "return_token_id", "tokenize",
     "author", "auth_type"],
)  # fmt: skip
def test_these_keys_do_not(key):
    assert not is_secret_key(key)


def test_a_masked_config_shows_everything_but_the_secrets(math):
    config = math.load(FILES, "+note=uses sk-very-secret here", "+db=http://me:hunter22@db/x", "+copy=hunter22")
    masked = config.masked()
    assert {
        key: masked[key] for key in ("policy_base_url", "policy_api_key", "note", "db", "copy", "policy_model")
    } == {
        "policy_base_url": "http://127.0.0.1:1/v1",
        "policy_api_key": "***",
        "note": "uses *** here",
        "db": "http://***@db/x",
        "copy": "***",
        "policy_model": {
            "responses_api_models": {
                "fake_model": {"entrypoint": "app.py", "base_url": "http://127.0.0.1:1/v1", "api_key": "***"}
            }
        },
    }
    assert masked["math_agent"] == {"responses_api_agents": {"fake_agent": config.instances["math_agent"].settings}}
    assert secrets(config) == {"sk-very-secret", "hunter22"}


def test_the_config_itself_keeps_its_secrets_after_masking(math):
    config = math.load(FILES)
    config.masked()
    assert config.settings["policy_api_key"] == "sk-very-secret"


def test_mask_works_on_any_plain_data():
    data = {
        "headers": {"Authorization": "Bearer abcdef", "accept": "x"},
        "api_keys": ["one-key", 12345],
        "credentials": {"user": "me", "pass": "word"},
        "token": None,
        "password": "",
        "use_token": True,
        "list": ["one-key", "12345", "see one-key", 12345],
        "link": "https://host/v1?api_key=abc&page=2",
        "max_tokens": 5,
    }
    assert mask(data) == {
        "headers": {"Authorization": "***", "accept": "x"},
        "api_keys": ["***", "***"],
        "credentials": {"user": "***", "pass": "***"},
        "token": None,
        "password": "",
        "use_token": True,
        "list": ["***", "***", "see ***", 12345],
        "link": "https://host/v1?api_key=***&page=2",
        "max_tokens": 5,
    }


def test_names_of_instances_and_implementations_are_not_keys_of_secrets():
    data = {"token_game": {"resources_servers": {"password_game": {"size": "big", "api_key": "k"}}}}
    assert mask(data) == {"token_game": {"resources_servers": {"password_game": {"size": "big", "api_key": "***"}}}}


def test_text_such_as_an_error_is_masked_with_the_secrets_of_a_config(math):
    found = secrets(math.load(FILES))
    assert mask_text("401 for sk-very-secret at http://a:b@c/d", found) == "401 for *** at http://***@c/d"


def test_a_short_secret_is_masked_only_where_it_is_the_whole_value():
    assert mask({"api_key": "x", "a": "x", "b": "text"}) == {"api_key": "***", "a": "***", "b": "text"}


@pytest.mark.parametrize("part", ["x", "?", "a://", "&a", "a.b-"])
def test_a_lot_of_text_without_a_secret_comes_back_as_it_is_and_soon(part):
    text = part * 300_000  # a pattern that backtracks would run into the suite's timeout
    assert mask_text(text) == text
