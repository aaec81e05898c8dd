"""Who may look, and what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from viewing import page_at, viewing

Json = dict[str, Any]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e%2fapp.py",
        "/static/..%2f..%2ferrors.py",
        "/static/",
        "/run/baseline/../../etc/passwd",
        "/run/..%2f..%2fetc%2fpasswd",
        "/run/baseline/rollout/..%2f1",
        "/run/baseline/rollout/-1",
        "/run/baseline/rollout/1.json.json",
        "/run/baseline/rollout/1.",
        "/run/baseline/rollout/²",
        "/run/baseline/rollout/99999999999999999999",
        "/run/baseline/rollout/0",
        "/run/baseline/key/none/0",
        "/run/baseline/task?id=none",
        "/run/nobody",
        "/compare?a=nobody",
    ],
)
def test_what_is_not_there_is_said_kindly(client: TestClient, path: str):
    page = page_at(client, path, 404)
    assert "Not found" in page.words
    assert "Traceback" not in page.words
    assert "/" in page.links()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8123", 200),
        ("localhost", 200),
        ("localhost:8123", 200),
        ("[::1]:8123", 200),
        ("evil.example", 421),
        ("evil.example:8123", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.0.0.5:8123", 421),
        ("", 421),
    ],
)
def test_only_the_names_of_this_machine_are_answered_to(client: TestClient, host: str, status: int):
    answer = client.get("/run/baseline/rollouts", headers={"host": host})
    assert answer.status_code == status
    assert ("task-0" in answer.text) == (status == 200)


def test_with_a_token_nobody_comes_in_without_it(run: Path):
    with viewing(run, token="s3cret") as client:
        for address in ("/run/baseline", "/run/baseline/rollout/1.json", "/nowhere"):
            refused = client.get(address, headers={"host": "evil.example"})
            assert (refused.status_code, "task-0" in refused.text) == (401, False)
        assert client.get("/run/baseline", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/run/baseline", headers={"authorization": "Bearer s3cret"}).status_code == 200
        wrong = client.post("/sign-in", data={"token": "guess", "to": "/run/baseline"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        right = client.post("/sign-in", data={"token": "s3cret", "to": "/run/baseline?q=1"})
        assert (right.status_code, right.headers["location"]) == (303, "/run/baseline?q=1")
        assert "HttpOnly" in right.headers["set-cookie"]
        assert "SameSite=strict" in right.headers["set-cookie"]
        assert "s3cret" not in right.headers["set-cookie"]
        assert client.get("/run/baseline", headers={"host": "machine.example"}).status_code == 200


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_signing_in_leads_nowhere_else(run: Path, to: str):
    with viewing(run, token="s3cret") as client:
        assert client.post("/sign-in", data={"token": "s3cret", "to": to}).headers["location"] == "/"
