"""Secrets are masked wherever they stand, and nothing else is."""

from __future__ import annotations

import base64
import string
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

import velodrome
from velodrome.cli import collect, run, verify
from velodrome.cli.main import main
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.local_model.app import LocalModel
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.settings import is_secret_key, mask, mask_text, secrets
from velodrome.settings.component import settings_of
from velodrome.settings.masking import secrets_in
from velodrome.settings.model import setting_keys, setting_names

FILES = "+config_paths=[model.yaml,agent.yaml]"


SECRET = """
api_key policy_api_key apiKey x-api-key token hf_token accessToken client_secret password db_passwd Authorization
credentials aws_secret_access_key private_key bearer_token Cookie Ocp-Apim-Subscription-Key X-Auth pwd db_pass pass
openai_key OPENAI_KEY signing_key creds cred bearer jwt auth_tokens refreshTokens user_tokens dbPassword dbpassword
sig X-Amz-Signature sas auth_header authHeader keys.openai_key service_keys
"""
PLAIN = """
max_tokens total_tokens max_output_tokens tokens tokenizer eos_token_id token_ids stop_token name key keys
max_total_tokens token_count return_token_id tokenize author auth_type keyboard keyframes monkey key_count sort_key
public_key pass_rate passes pass_threshold compass bypass signal design tokens_per_second cached_tokens
num_new_tokens tokenizer_path oauth_url path pattern patience_s
"""


@pytest.mark.parametrize(("keys", "secret"), [(SECRET, True), (PLAIN, False)])
def test_a_key_says_whether_it_holds_a_secret(keys: str, secret: bool):
    assert [key for key in keys.split() if is_secret_key(key) != secret] == []


def test_a_masked_config_shows_everything_but_the_secrets(math):
    config = math.load(FILES, "+note=uses sk-very-secret here", "+db=http://me:hunter22@db/x", "+copy=hunter22")
    masked = config.masked()
    model = {"entrypoint": "app.py", "base_url": "http://127.0.0.1:1/v1", "api_key": "***"}
    agent = config.instances["math_agent"].settings
    assert {name: value for name, value in masked.items() if name != "math"} == {
        "policy_base_url": "http://127.0.0.1:1/v1",
        "policy_api_key": "***",
        "note": "uses *** here",
        "db": "http://***@db/x",
        "copy": "***",
        "policy_model": {"responses_api_models": {"fake_model": model}},
        "math_agent": {"responses_api_agents": {"fake_agent": agent}},
    }
    assert (known := secrets(config)) == {"sk-very-secret", "hunter22"}
    assert mask_text("401 for sk-very-secret at http://a:b@c/d", known) == "401 for *** at http://***@c/d"
    assert config.settings["policy_api_key"] == "sk-very-secret"


def test_mask_works_on_any_plain_data():
    data = {
        "headers": {"Authorization": "Bearer abcdef", "accept": "x"},
        "default_headers": {"X-Gate": "open-5-sesame", "Accept": "text/plain"},
        "api_keys": ["one-key", 12345],
        "credentials": {"user": "me", "pass": "word"},
        "token": None,
        "use_token": True,
        "list": ["one-key", "see one-key", "sent open-5-sesame", 12345],
        "link": "https://host/v1?api_key=abc&page=2",
        "secret": "q",
        "text": "q quiz",
        "token_game": {"resources_servers": {"password_game": {"size": "big", "api_key": "k"}}},
    }
    assert mask(data) == {
        "headers": {"Authorization": "***", "accept": "x"},
        "default_headers": {"X-Gate": "***", "Accept": "text/plain"},
        "api_keys": ["***", "***"],
        "credentials": {"user": "***", "pass": "***"},
        "token": None,
        "use_token": True,
        "list": ["***", "see ***", "sent ***", 12345],
        "link": "https://host/v1?api_key=***&page=2",
        "secret": "***",
        "text": "q quiz",  # a short one is masked only where it is the whole value
        "token_game": {"resources_servers": {"password_game": {"size": "big", "api_key": "***"}}},
    }
    lines = ["-----BEGIN PRIVATE KEY-----", "a" * 64, "b" * 30, "-----END PRIVATE KEY-----"]
    assert mask_text(f"load: {lines[1]}", secrets_in({"tls": "\n".join(lines)})) == "load: ***"  # line by line


@pytest.mark.parametrize("part", ["x", "?", "a://", "&a", "a.b-"])
def test_a_lot_of_text_without_a_secret_comes_back_as_it_is_and_soon(part):
    text = part * 300_000  # a pattern that backtracks would run into the suite's timeout
    assert mask_text(text) == text


def keys_in(data: Any) -> Iterator[str]:
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield str(key)
        yield from keys_in(value)


def test_of_all_keys_that_the_package_ships_only_the_secrets_are_masked():
    keys = setting_names(collect.CollectOptions) | setting_names(verify.VerifyOptions) | {"token"}
    for model in (run.RunOptions, *map(settings_of, (SimpleAgent, LocalModel, OpenAI, ScriptedModel))):
        keys |= setting_keys(model)
    texts = [path.read_text() for path in Path(velodrome.__file__).parent.glob("*/*/configs/*.yaml")]
    for text in texts:
        keys |= set(keys_in(yaml.safe_load(text)))
    assert {key for key in keys if is_secret_key(key)} == {"api_key", "openai_api_key", "server_token", "token"}
    lines = [line for text in texts for line in text.splitlines() if "api_key" not in line]
    assert lines
    assert [line for line in lines if mask_text(line) != line] == []


HARMLESS = [
    "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
    "POST http://127.0.0.1:11002/v1/chat/completions: 500 Internal Server Error after 5 retries",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "b6c7a264cab1a2ada8a44bef0e0c9fa6cba99ea3a6f7ef544931ba9edc65739d",
    "123e4567-e89b-12d3-a456-426614174000",
    "resources_servers/example_session_state_mgmt/data/example.jsonl:17: no such thing",
    "'x': no \"=\"; write it as key=value",
    "a bearer token is wanted (server_token, or VELODROME_TOKEN)",
    "policy_api_key: expected a text; set server_token (env.yaml), or VELODROME_TOKEN in the environment",
    "temperature=0.7 key=task-17/0 at 12:30:45, user@example.com, see http://host/a:b/c",
    "TypeError: unsupported operand type(s) for +: 'NoneType' and 'str'",
]


def test_what_is_no_secret_is_shown():
    assert list(map(mask_text, HARMLESS)) == HARMLESS


BASE62 = string.ascii_letters + string.digits


def shapes(random: Random) -> dict[str, str]:
    """Secrets in the forms that their issuers give them."""

    def some(count: int, letters: str = BASE62) -> str:
        return "".join(random.choices(letters, k=count))

    def encoded(count: int) -> str:
        return base64.urlsafe_b64encode(random.randbytes(count)).decode().rstrip("=")

    return {
        "openai": f"sk-{some(32)}",
        "project": f"sk-proj-{encoded(60)}",
        "github": f"ghp_{some(36)}",
        "aws": f"AKIA{some(16, string.ascii_uppercase + string.digits)}",
        "jwt": f"eyJhbGciOiJIUzI1NiJ9.{encoded(40)}.{encoded(32)}",
        "hugging face": f"hf_{some(34)}",
        "anything": some(40),
        "base64": base64.b64encode(random.randbytes(48)).decode() + "==",
        "pem": f"-----BEGIN RSA PRIVATE KEY-----\n{some(64)}\n{some(20)}\n-----END RSA PRIVATE KEY-----",
    }


PLACES = {
    "alone": "{}",
    "sentence": "401: the key {} is not valid here",
    "path": "POST https://hooks.example/services/{}/send: 500",
    "query": "https://host/a?page=2&state={}",
    "mapping": "{{'note': '{}'}}",
    "argument": "--option={} --other",
}


@pytest.mark.parametrize("kind", shapes(Random(0)))
def test_what_has_the_form_of_a_secret_is_masked_wherever_it_stands(kind: str):
    for seed in range(30):
        secret = shapes(Random(seed))[kind]
        for name, place in PLACES.items():
            text = place.format(secret)
            shown = mask_text(text)
            assert secret not in shown, (name, shown)
            assert not any(part in shown for part in pieces(secret)), (name, shown)
        assert secret not in str(mask({"note": [secret], "copy": f"see {secret}"}))


def pieces(secret: str) -> list[str]:
    """Parts of a secret that say much about it."""
    return [secret[at : at + 12] for at in range(12, len(secret) - 12, 12) if "-" not in secret[at : at + 12]]


NAMED = {
    "connection string": "Server=db;User Id=me;Password={};Timeout=3",
    "account key": "AccountName=a;AccountKey={}==;EndpointSuffix=core.example",
    "signature": "https://host/blob?sv=2020&sig={}&se=1",
    "api key in a query": "https://host/v1?key={}",
    "userinfo": "postgres://me:{}@db:5432/x",
    "path": "https://host/token/{}/send",
    "environment": "OPENAI_KEY={} velo collect",
    "printed mapping": "{{'db_pass': '{}', 'n': 1}}",
    "header": "sent x-api-key: {}",
    "bearer": "Authorization: Bearer {}",
}


def test_what_a_name_in_the_text_calls_a_secret_is_masked_whatever_its_form():
    for place in NAMED.values():
        for secret in ("hunter22", "Correct-Horse7", "abcdef.123"):
            shown = mask_text(place.format(secret))
            assert secret not in shown
            assert "***" in shown


def test_an_error_of_a_command_is_masked(capsys: pytest.CaptureFixture[str]):
    secret = shapes(Random(1))["github"]
    assert main(["config", f"+config_paths=[{secret}.yaml]"]) == 2
    assert "no file" in (said := capsys.readouterr().err)
    assert secret not in said


def test_a_secret_is_masked_percent_encoded_too():
    known = secrets_in({"api_key": "p@ss/w0rd+x y", "url": "https://me:h%40nter22@host"})
    for form in ("p%40ss%2Fw0rd%2Bx%20y", "p%40ss/w0rd%2Bx%20y", "p%40ss%2Fw0rd%2Bx+y", "h@nter22"):
        assert mask_text(f"GET /x?q={form} failed", known) == "GET /x?q=*** failed"
    assert mask_text("to=https%3A%2F%2Fme%3ahunter22%40host%2Fp") == "to=https%3A%2F%2F***%40host%2Fp"
    assert mask_text("next=%2Fp%3Ftoken%3Dabcdef123&n=1") == "next=%2Fp%3Ftoken%3D***&n=1"
    assert mask_text("Bearer%20sk-abcdefgh12345678") == "Bearer%20***"
    other = secrets_in({"api_key": "a/b+c==pässe"})
    for form in ("a%2Fb+c==p%C3%A4sse", "a/b%2bc==p%c3%a4sse", "%61/b+c%3d=pässe"):
        assert mask_text(f"GET /x?q={form}&n=1 failed", other) == "GET /x?q=***&n=1 failed"
    assert mask_text("/x?api%5Fkey=abcdef123&n=1") == "/x?api%5Fkey=***&n=1"
    assert mask_text("100%25 of a%20b, 5 % of it") == "100%25 of a%20b, 5 % of it"
