"""A real browser on this machine: a page of another web site can neither spend a model call nor read an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import running
from tests.support.looking import EmptyPage

pytestmark = pytest.mark.slow

MODEL = """
from pathlib import Path


class Paid:
    def __init__(self):
        self._spent = Path("spent.txt")

    async def respond(self, request):
        with self._spent.open("a") as file:
            file.write(str(request["input"]) + "\\n")
        message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "an answer"}]}
        return {"id": "r", "object": "response", "model": "paid", "status": "completed", "output": [message]}

    async def aclose(self):
        pass
"""
CONFIG = """
policy_model:
  responses_api_models:
    paid: {}
"""
# Every way a page has to send something elsewhere without leave, and what it could read of the answers.
ATTACK = """
async ([url, head]) => {
  const body = '{"input": "from a page"}', read = [];
  const send = async (to, options) => {
    try { const answer = await fetch(to, options); read.push((await answer.text()).slice(0, 80)); } catch (error) {}
  };
  for (const mode of ['no-cors', 'cors'])
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/json'])
      await send(url, {method: 'POST', mode, body, headers: {'Content-Type': type}, credentials: 'include'});
  await send(url, {method: 'POST', mode: 'no-cors', body: new Blob([body])});
  const metrics = url.replace('/v1/responses', '/metrics');
  for (const to of [head + '/server_instances', head + '/global_config_dict_yaml', metrics])
    for (const mode of ['no-cors', 'cors']) await send(to, {mode});
  navigator.sendBeacon(url, body);
  for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
    const frame = document.createElement('iframe'), form = document.createElement('form');
    frame.name = enctype;
    Object.assign(form, {method: 'POST', action: url, enctype, target: enctype});
    const field = document.createElement('input');
    Object.assign(field, {name: '{"input": "from a form", "x": "', value: '"}'});
    form.append(field);
    const loaded = new Promise(done => frame.onload = done);
    document.body.append(frame, form);
    form.submit();
    await loaded;
  }
  return read.filter(text => text);
}
"""
REBOUND = """
async (paths) => {
  const read = [], headers = {'Content-Type': 'application/json'};
  for (const path of paths)
    for (const options of [{}, {method: 'POST', body: '{"input": "rebound"}', headers}]) {
      const answer = await fetch(path, options);
      read.push([answer.status, (await answer.text()).includes('an answer')]);
    }
  return read;
}
"""
ASK = """
async (path) => {
  const options = {method: 'POST', body: '{"input": "own"}', headers: {'Content-Type': 'application/json'}};
  const answer = await fetch(path, options);
  return [answer.status, (await answer.text()).includes('an answer')];
}
"""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of another web site, which is on another port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{site.server_port}/"
        site.shutdown()
        thread.join()


def test_a_page_of_another_site_can_neither_spend_nor_read(chromium: Any, tmp_path: Path, elsewhere: str):
    running.write_component(tmp_path, "responses_api_models", "paid", MODEL)
    (tmp_path / "model.yaml").write_text(CONFIG)
    spent = tmp_path / "spent.txt"
    with running.Session(tmp_path, "+config_paths=[model.yaml]") as session:
        url = session.up().instances()["policy_model"]["url"]
        page = chromium.new_page()
        page.goto(elsewhere)
        assert page.evaluate(ATTACK, [f"{url}/v1/responses", session.head]) == []
        assert not spent.exists()

        # The name of the site resolves to loopback now; its page came from the same port.
        port = url.rpartition(":")[2]
        page.route("**/page", lambda route: route.fulfill(content_type="text/html", body="<body>"))
        page.goto(f"http://evil.example:{port}/page")
        assert page.evaluate(REBOUND, ["/v1/responses", "/health"]) == [[421, False]] * 4
        assert not spent.exists()

        page.goto(f"{url}/health")
        assert page.evaluate(ASK, "/v1/responses") == [200, True]
        assert spent.read_text() == "own\n"
        page.close()
        assert session.ends(running.signal.SIGTERM) == 0
