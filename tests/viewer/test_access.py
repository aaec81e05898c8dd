"""Who may look, and what is not there."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from tests.support.viewing import page_at, viewing

NOT_THERE = [
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
]


def test_what_is_not_there_is_a_page_that_leads_back(client: TestClient):
    for path in NOT_THERE:
        page = page_at(client, path, 404)
        assert ("Not found" in page.words, "Traceback" in page.words, "/" in page.links()) == (True, False, True), path


def test_only_the_names_of_this_machine_are_answered_to(client: TestClient):
    own = ["127.0.0.1:8123", "localhost", "localhost:8123", "[::1]:8123"]
    others = ["evil.example", "evil.example:8123", "127.0.0.1.evil.example", "10.0.0.5:8123", ""]
    answers = {host: client.get("/run/baseline/rollouts", headers={"host": host}) for host in own + others}
    assert {host: answer.status_code for host, answer in answers.items()} == {
        **dict.fromkeys(own, 200),
        **dict.fromkeys(others, 421),
    }
    assert [host for host, answer in answers.items() if "task-0" in answer.text] == own


def test_with_a_token_nobody_comes_in_without_it(run: Path):
    with viewing(run, token="s3cret") as client:
        for address in ("/run/baseline", "/run/baseline/rollout/1.json", "/nowhere"):
            refused = client.get(address, headers={"host": "evil.example"})
            assert (refused.status_code, "task-0" in refused.text) == (401, False)
        assert client.get("/run/baseline", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/run/baseline", headers={"authorization": "Bearer s3cret"}).status_code == 200
        wrong = client.post("/sign-in", data={"token": "guess", "to": "/run/baseline"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        for to in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", ""):
            assert client.post("/sign-in", data={"token": "s3cret", "to": to}).headers["location"] == "/"
            client.cookies.clear()
        right = client.post("/sign-in", data={"token": "s3cret", "to": "/run/baseline?q=1"})
        assert (right.status_code, right.headers["location"]) == (303, "/run/baseline?q=1")
        assert "HttpOnly" in right.headers["set-cookie"]
        assert "SameSite=strict" in right.headers["set-cookie"]
        assert "s3cret" not in right.headers["set-cookie"]
        assert client.get("/run/baseline", headers={"host": "machine.example"}).status_code == 200
