"""Instances: their shape, their implementations, and the references between them."""

from __future__ import annotations

import pytest

FILES = "+config_paths=[model.yaml,agent.yaml]"


def block(name: str, kind: str = "responses_api_models", implementation: str = "fake_model", body: str = "{}") -> str:
    return f"{name}: {{{kind}: {{{implementation}: {body}}}}}\n"


def test_a_mapping_without_a_kind_is_a_plain_setting_and_a_block_without_settings_is_empty(desk):
    plain = {"responses_create_params": {"temperature": 0.7}, "resources_server": {"type": "x"}}
    desk.write(env="responses_create_params: {temperature: 0.7}\nresources_server: {type: x}\n" + block("m", body=""))
    config = desk.load()
    assert (config.settings, config.instances["m"].settings) == (plain, {})


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (block("m", "resources_servers", "fake_math"), ['"resources_servers" (b.yaml)', "~m.responses_api_models"]),
        (block("m", "resource_servers", "fake_math"), ['did you mean "resources_servers"?']),
    ],
)
def test_a_later_file_that_makes_it_another_thing_is_a_problem(desk, later, words):
    desk.write(a=block("m"), b=later)
    [problem] = desk.problems("+config_paths=[a.yaml,b.yaml]")
    assert problem.startswith("b.yaml: m has ")
    assert [word for word in words if word not in problem] == []


def test_a_block_with_a_url_or_another_entrypoint_needs_no_app_py_here(desk):
    folder = desk.root / "resources_servers/mine"
    folder.mkdir()
    (folder / "server.py").write_text("", encoding="utf-8")
    own = block("own", "resources_servers", "mine", "{entrypoint: server.py}")
    desk.write(env=own + block("m", implementation="theirs", body="{url: 'http://127.0.0.1:1'}"))
    instances = desk.load().instances
    assert (instances["m"].implementation, instances["own"].settings) == ("theirs", {"entrypoint": "server.py"})


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        (block("m", "resource_servers", "fake_math"), "m:", 'did you mean "resources_servers"?'),
        ("m: {responses_api_models: {}}\n", "m.responses_api_models ", "implementation"),
        (block("m", body="[1]"), "m.responses_api_models.fake_model ", "mapping"),
        (block("m", implementation="fake_modle"), "m.responses_api_models:", 'did you mean "fake_model"?'),
        (block("m", "resources_servers", "zzzzzzzz"), "m.resources_servers:", "app.py"),
        (block("m", implementation="../responses_api_models/fake_model"), "m.responses_api_models:", "unknown"),
        (block("m", body="{entrypoint: ap.py}"), "m.responses_api_models.fake_model:", 'did you mean "app.py"?'),
    ],
)
def test_a_badly_shaped_block_is_one_line(desk, text, place, word):
    desk.write(env=text)
    [problem] = desk.problems()
    assert problem.startswith(f"env.yaml: {place}")
    assert word in problem


MODEL = "math_agent.responses_api_agents.fake_agent.model_server"


@pytest.mark.parametrize(
    ("override", "place", "word"),
    [
        (f"{MODEL}.name=polcy_model", f"command line: {MODEL} ", 'did you mean "policy_model"?'),
        (f"{MODEL}.name=math", f"command line: {MODEL} ", "resources_servers"),
        (f"{MODEL}.name=???", f"command line: {MODEL}.name ", "mandatory"),
        (f"{MODEL}.type=responses_api_model", f"agent.yaml: {MODEL} ", 'did you mean "responses_api_models"?'),
        (
            "+math.resources_servers.fake_math.judges=[{type: responses_api_models, name: nobody}]",
            "command line: math.resources_servers.fake_math.judges.0 ",
            "there are policy_model",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_one_line_with_the_nearest_instance_of_its_kind(math, override, place, word):
    [problem] = math.problems(FILES, override)
    assert problem.startswith(place)
    assert word in problem


def test_a_block_that_is_an_expression_is_filled_in(desk):
    desk.write(env="shared: {x: 1}\n" + block("m", body="'${shared}'"))
    assert desk.load().instances["m"].settings == {"x": 1}
    desk.write(env=block("m", body="'${shared}'"))
    assert len(desk.problems()) == 1


def test_instances_that_refer_to_each_other_in_a_circle_are_named(desk):
    def agent(name: str, other: str) -> str:
        body = f"{{next: {{type: responses_api_agents, name: {other}}}}}"
        return block(name, "responses_api_agents", "fake_agent", body)

    desk.write(env=agent("a", "b") + agent("b", "c") + agent("c", "b") + agent("d", "d"))
    assert [problem.split(": ")[2].split(";")[0] for problem in desk.problems()] == ["b -> c -> b", "d -> d"]
