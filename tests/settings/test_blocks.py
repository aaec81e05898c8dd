"""Instances: their shape, their implementations, and the references between them."""

from __future__ import annotations

import pickle

import pytest

FILES = "+config_paths=[model.yaml,agent.yaml]"


def block(name: str, kind: str = "responses_api_models", implementation: str = "fake_model", body: str = "{}") -> str:
    return f"{name}: {{{kind}: {{{implementation}: {body}}}}}\n"


def test_a_mapping_without_a_kind_is_a_plain_setting(desk):
    desk.write(env="responses_create_params: {temperature: 0.7}\nresources_server: {type: x}\n")
    config = desk.load()
    assert config.settings == {"responses_create_params": {"temperature": 0.7}, "resources_server": {"type": "x"}}
    assert config.instances == {}


def test_a_block_without_settings_is_empty(desk):
    desk.write(env=block("m", body=""))
    assert desk.load().instances["m"].settings == {}


def test_a_later_file_merges_over_a_block(desk):
    desk.write(a=block("m", body="{x: 1, y: 1}"), b=block("m", body="{y: 2}"))
    instance = desk.load("+config_paths=[a.yaml,b.yaml]").instances["m"]
    assert (instance.settings, instance.source) == ({"x": 1, "y": 2}, "a.yaml")


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (block("m", "resources_servers", "fake_math"), ['"resources_servers" (b.yaml)', "~m.responses_api_models"]),
        (block("m", implementation="other"), ['"other" (b.yaml)', "~m.responses_api_models.fake_model"]),
        (block("m", "resource_servers", "fake_math"), ['did you mean "resources_servers"?']),
    ],
)
def test_a_later_file_that_makes_it_another_thing_is_a_problem(desk, later, words):
    desk.write(a=block("m"), b=later)
    [problem] = desk.problems("+config_paths=[a.yaml,b.yaml]")
    assert problem.startswith("b.yaml: m has ")
    assert [word for word in words if word not in problem] == []


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        (block("m", "resource_servers", "fake_math"), "m:", 'did you mean "resources_servers"?'),
        ("m: {responses_api_models: {}}\n", "m.responses_api_models ", "implementation"),
        ("m: {responses_api_models: fake_model}\n", "m.responses_api_models ", "implementation"),
        (block("m", body="[1]"), "m.responses_api_models.fake_model ", "mapping"),
        (block("m", implementation="fake_modle"), "m.responses_api_models:", 'did you mean "fake_model"?'),
        (block("m", "resources_servers", "zzzzzzzz"), "m.resources_servers:", "app.py"),
        (block("m", implementation="../responses_api_models/fake_model"), "m.responses_api_models:", "unknown"),
        (block("m", body="{entrypoint: ap.py}"), "m.responses_api_models.fake_model:", 'did you mean "app.py"?'),
        (block("m", body="{entrypoint: 3}"), "m.responses_api_models.fake_model.entrypoint ", "app.py"),
    ],
)
def test_a_badly_shaped_block_is_one_line(desk, text, place, word):
    desk.write(env=text)
    [problem] = desk.problems()
    assert problem.startswith(f"env.yaml: {place}")
    assert word in problem


def test_a_block_with_a_url_needs_no_implementation_here(desk):
    desk.write(env=block("m", implementation="theirs", body="{url: 'http://127.0.0.1:1'}"))
    assert desk.load().instances["m"].implementation == "theirs"


def test_an_entrypoint_other_than_app_py_is_enough(desk):
    folder = desk.root / "resources_servers/mine"
    folder.mkdir()
    (folder / "server.py").write_text("", encoding="utf-8")
    desk.write(env=block("m", "resources_servers", "mine", "{entrypoint: server.py}"))
    assert desk.load().instances["m"].settings == {"entrypoint": "server.py"}


MODEL = "math_agent.responses_api_agents.fake_agent.model_server"


@pytest.mark.parametrize(
    ("override", "place", "word"),
    [
        (f"{MODEL}.name=polcy_model", f"command line: {MODEL} ", 'did you mean "policy_model"?'),
        (f"{MODEL}.name=zzz", f"command line: {MODEL} ", "there are policy_model"),
        (f"{MODEL}.name=math", f"command line: {MODEL} ", "resources_servers"),
        (f"{MODEL}.name=null", f"command line: {MODEL} ", "without a name"),
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


def test_every_reference_to_what_no_file_defines_is_reported(math):
    problems = math.problems("+config_paths=[agent.yaml]")
    assert [problem.split(" ")[1].rpartition(".")[2] for problem in problems] == ["judge_model_server", "model_server"]


def test_a_data_set_is_not_a_reference(math):
    assert "datasets" not in math.load(FILES).instances["math_agent"].references()


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


def test_two_ways_to_the_same_instance_are_not_a_circle(math):
    assert list(math.load(FILES).instances) == ["policy_model", "math", "math_agent"]


def test_a_config_can_be_sent_to_another_process(math):
    config = math.load(FILES)
    assert pickle.loads(pickle.dumps(config)) == config
