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
    ("later", "problem"),
    [
        (
            block("m", "resources_servers", "fake_math"),
            'b.yaml: m has "responses_api_models" (a.yaml) and "resources_servers" (b.yaml) where one kind belongs;'
            " rename one of the blocks or give ~m.responses_api_models",
        ),
        (
            block("m", implementation="other"),
            'b.yaml: m has "fake_model" (a.yaml) and "other" (b.yaml) where one implementation belongs;'
            " rename one of the blocks or give ~m.responses_api_models.fake_model",
        ),
        (
            block("m", "resource_servers", "fake_math"),
            'b.yaml: m has "responses_api_models" (a.yaml) and "resource_servers" (b.yaml) where one kind belongs;'
            ' rename one of the blocks or give ~m.responses_api_models; did you mean "resources_servers"?',
        ),
    ],
)
def test_a_later_file_that_makes_it_another_thing_is_a_problem(desk, later, problem):
    desk.write(a=block("m"), b=later)
    assert desk.problems("+config_paths=[a.yaml,b.yaml]") == [problem]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            block("m", "resource_servers", "fake_math"),
            'm: unknown kind "resource_servers"; did you mean "resources_servers"?',
        ),
        (
            "m: {responses_api_models: {}}\n",
            "m.responses_api_models names no implementation; write responses_api_models: {IMPLEMENTATION: {…}}",
        ),
        (
            "m: {responses_api_models: fake_model}\n",
            "m.responses_api_models names no implementation; write responses_api_models: {IMPLEMENTATION: {…}}",
        ),
        (
            block("m", body="[1]"),
            "m.responses_api_models.fake_model is not a mapping of settings; write key: value below it",
        ),
        (
            block("m", implementation="fake_modle"),
            'm.responses_api_models: unknown implementation "fake_modle": no folder responses_api_models/fake_modle/'
            ' in CWD or in the velodrome package; did you mean "fake_model"?',
        ),
        (
            block("m", "resources_servers", "zzzzzzzz"),
            'm.resources_servers: unknown implementation "zzzzzzzz": no folder resources_servers/zzzzzzzz/ in CWD'
            " or in the velodrome package; make one with an app.py, or give the block a url",
        ),
        (
            block("m", implementation="../responses_api_models/fake_model"),
            'm.responses_api_models: unknown implementation "../responses_api_models/fake_model": no folder'
            " responses_api_models/../responses_api_models/fake_model/ in CWD or in the velodrome package;"
            " make one with an app.py, or give the block a url",
        ),
        (
            block("m", body="{entrypoint: ap.py}"),
            'm.responses_api_models.fake_model: no file "ap.py" in its folder; did you mean "app.py"?',
        ),
        (
            block("m", body="{entrypoint: 3}"),
            "m.responses_api_models.fake_model.entrypoint is not a file name; write entrypoint: app.py",
        ),
    ],
)
def test_a_badly_shaped_block_is_one_line(desk, text, problem):
    desk.write(env=text)
    assert desk.problems() == [f"env.yaml: {problem}"]


def test_a_block_with_a_url_needs_no_implementation_here(desk):
    desk.write(env=block("m", implementation="theirs", body="{url: 'http://127.0.0.1:1'}"))
    assert desk.load().instances["m"].implementation == "theirs"


def test_an_entrypoint_other_than_app_py_is_enough(desk):
    folder = desk.root / "resources_servers/mine"
    folder.mkdir()
    (folder / "server.py").write_text("", encoding="utf-8")
    desk.write(env=block("m", "resources_servers", "mine", "{entrypoint: server.py}"))
    assert desk.load().instances["m"].settings == {"entrypoint": "server.py"}


def test_a_reference_to_nothing_gets_the_nearest_instance_of_its_kind(math):
    path = "math_agent.responses_api_agents.fake_agent.model_server"
    assert math.problems(FILES, f"{path}.name=polcy_model") == [
        f'command line: {path} refers to "polcy_model", which no file defines; did you mean "policy_model"?'
    ]
    assert math.problems(FILES, f"{path}.name=zzz") == [
        f'command line: {path} refers to "zzz", which no file defines; there are policy_model'
    ]
    assert math.problems("+config_paths=[agent.yaml]") == [
        'agent.yaml: math.resources_servers.fake_math.judge_model_server refers to "policy_model",'
        " which no file defines;"
        " add a file that defines one of responses_api_models",
        f'agent.yaml: {path} refers to "policy_model", which no file defines;'
        " add a file that defines one of responses_api_models",
    ]


def test_a_reference_of_the_wrong_kind_or_type_or_without_a_name_is_a_problem(math):
    path = "math_agent.responses_api_agents.fake_agent.model_server"
    assert math.problems(FILES, f"{path}.name=math") == [
        f'command line: {path} refers to "math" as one of responses_api_models, but it is one of resources_servers'
    ]
    assert math.problems(FILES, f"{path}.type=responses_api_model") == [
        f'agent.yaml: {path} has the unknown type "responses_api_model"; did you mean "responses_api_models"?'
    ]
    assert math.problems(FILES, f"{path}.name=null") == [
        f"command line: {path} refers to one of responses_api_models without a name; add name: INSTANCE"
    ]


def test_a_reference_deep_inside_a_block_is_checked_too(math):
    deep = "+math.resources_servers.fake_math.judges=[{type: responses_api_models, name: nobody}]"
    assert math.problems(FILES, deep) == [
        'command line: math.resources_servers.fake_math.judges.0 refers to "nobody", which no file defines;'
        " there are policy_model"
    ]


def test_a_data_set_is_not_a_reference(math):
    assert "datasets" not in math.load(FILES).instances["math_agent"].references()


def test_a_reference_whose_name_is_missing_is_reported_once(math):
    path = "math_agent.responses_api_agents.fake_agent.model_server.name"
    assert math.problems(FILES, f"{path}=???") == [
        f"command line: {path} is mandatory; put it in env.yaml or give +{path}=…"
    ]


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
    assert desk.problems() == [
        "env.yaml: instances refer to each other in a circle: b -> c -> b; break it",
        "env.yaml: instances refer to each other in a circle: d -> d; break it",
    ]


def test_two_ways_to_the_same_instance_are_not_a_circle(math):
    assert list(math.load(FILES).instances) == ["policy_model", "math", "math_agent"]


def test_a_config_can_be_sent_to_another_process(math):
    config = math.load(FILES)
    assert pickle.loads(pickle.dumps(config)) == config
