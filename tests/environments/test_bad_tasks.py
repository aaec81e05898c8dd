"""A task that cannot be scored is blamed on the input, by the name of its field; it is never a zero of the model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.resources_servers.playing import Json, opened, score
from velodrome.environments.code_gen.app import CodeGen
from velodrome.environments.equivalence_llm_judge.app import EquivalenceLlmJudge
from velodrome.environments.equivalence_rule.app import EquivalenceRule
from velodrome.environments.instruction_following.app import InstructionFollowing
from velodrome.environments.mcp_tools.app import McpTools
from velodrome.environments.python_tool.app import PythonTool
from velodrome.environments.structured_outputs.app import StructuredOutputs
from velodrome.environments.terminal.app import Terminal
from velodrome.environments.text_to_sql.app import TextToSql
from velodrome.environments.workplace.app import Workplace
from velodrome.errors import RolloutError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.resources_servers.math_with_judge.app import MathWithJudge
from velodrome.resources_servers.mcqa.app import Mcqa

ANSWER = "```sql\nSELECT 1\n```\n```python\nprint(1)\n```\nAnswer: 1"
CASES = {"inputs": ["1"], "outputs": ["1"]}
TABLE = {"schema": "CREATE TABLE t (a)", "rows": {}, "hidden_rows": [], "reference_query": "SELECT a FROM t"}
KEPT = [{"type": "file_absent", "path": "a"}, {"type": "file_lacks", "path": "b", "text": "x"}]
NEVER = [{"type": "file_exists", "path": "never"}]
OFFICE = {"me": "a", "now": "2026-03-02 08:30"}
TWO = ["x", "y"]
UNCHANGED = {"changes": [], "answer_includes": ["x"]}


def schema(value: Any, **expected: Any) -> Json:
    return {"schema": value, **expected}


WHEN_SCORED = [
    *((Calculator, {"expected_answer": value}, '"expected_answer"') for value in (None, "many", True)),
    (CodeGen, {}, '"test_cases"'),
    (CodeGen, {"test_cases": {"inputs": [], "outputs": []}}, '"inputs"'),
    (CodeGen, {"test_cases": {"inputs": TWO, "outputs": ["1"]}}, "2 inputs for 1 outputs"),
    (CodeGen, {"entry_point": "f", "test_cases": {"inputs": [[1]], "outputs": [None]}}, "every output is empty"),
    (CodeGen, {"test_cases": CASES, "entry_point": "f"}, "list of arguments"),
    (CodeGen, {"test_cases": CASES, "entry_point": "os.system('x')"}, '"entry_point"'),
    (EquivalenceLlmJudge, {"question": "?"}, '"expected_answer"'),
    (EquivalenceRule, {}, '"kind"'),
    (EquivalenceRule, {"kind": "colour", "expected_answer": "red"}, '"kind"'),
    (EquivalenceRule, {"kind": "number", "expected_answer": True}, '"expected_answer"'),
    (EquivalenceRule, {"kind": "number", "expected_answer": 1, "abs_tolerance": -1}, '"abs_tolerance"'),
    (EquivalenceRule, {"kind": "unit", "expected_answer": "3 parsnips"}, '"expected_answer"'),
    (EquivalenceRule, {"kind": "unit", "expected_answer": "3 m", "only_unit": "km"}, '"expected_answer"'),
    (EquivalenceRule, {"kind": "date", "expected_answer": "03/04/2024"}, '"expected_answer"'),
    (EquivalenceRule, {"kind": "text", "expected_answer": "x", "aliases": "y"}, '"aliases"'),
    (InstructionFollowing, {}, 'no "constraints"'),
    (InstructionFollowing, {"constraints": [{"kind": "poetic"}]}, "'poetic' is not a kind"),
    (InstructionFollowing, {"constraints": [{"kind": "max_words"}]}, '"count" must be a whole number'),
    (InstructionFollowing, {"constraints": [{"kind": "max_words", "count": 5, "word": "x"}]}, 'it has no "word"'),
    (InstructionFollowing, {"constraints": [{"kind": "script", "script": "runes"}]}, '"script" must be one of'),
    *((MathWithJudge, {"expected_answer": value}, '"expected_answer"') for value in (None, " ")),
    (McpTools, {"expected_calls": "reserve"}, '"expected_calls"'),
    (Mcqa, {}, '"options"'),
    (Mcqa, {"options": TWO, "expected_answer": "C"}, '"expected_answer"'),
    (Mcqa, {"options": ["x"], "expected_answer": "A"}, '"options"'),
    (Mcqa, {"options": {"AA": "x", "B": "y"}, "expected_answer": "B"}, '"options"'),
    (Mcqa, {"options": TWO, "expected_answer": "A", "extraction": ["regex"]}, '"extraction"'),
    *((PythonTool, {"expected_answer": value}, '"expected_answer"') for value in (None, True, ["1"])),
    (StructuredOutputs, {}, '"schema"'),
    (StructuredOutputs, schema({"$ref": "#"}), "without end"),
    (TextToSql, {**TABLE, "reference_query": 1}, '"reference_query" must be'),
    (TextToSql, {**TABLE, "hidden_rows": {}}, '"hidden_rows" must be a list'),
    (TextToSql, {**TABLE, "rows": {"u": [[1]]}}, "is not a database"),
    (TextToSql, {**TABLE, "reference_query": "SELECT b FROM u"}, '"reference_query" does not run'),
]
AT_ONCE = [
    *(
        (ExampleSessionStateMgmt, {"expected_count": 3, "initial_count": value}, "whole number")
        for value in (None, "3")
    ),
    *((PythonTool, {"files": files}, '"files"') for files in (["a"], {"a": 1}, {"../a": "x"}, {"/a": "x"})),
    (StructuredOutputs, schema({"type": "strange"}), '"schema"'),
    (StructuredOutputs, schema({"$ref": "https://example.org/schema.json"}), "nothing is fetched"),
    (StructuredOutputs, schema({"$ref": "#/$defs/missing"}), "leads nowhere"),
    (StructuredOutputs, schema({"$comment": "x" * 70_000}), "70015 bytes"),
    (StructuredOutputs, schema({}, expected={"city": 1}), "JSON pointer"),
    (StructuredOutputs, schema({}, expected={"/city": {"$near": 1}}), "not one of"),
    (Terminal, {}, '"checks"'),
    (Terminal, {"checks": [{"type": "file_is"}]}, "there are: file_equals"),
    (Terminal, {"checks": [{"type": "file_equals", "path": "a"}]}, '"text"'),
    (Terminal, {"checks": [{"type": "sorted_lines", "path": "a", "lines": "b"}]}, '"lines"'),
    (Terminal, {"checks": KEPT, "files": {"b": ""}}, "all of them hold"),
    (Terminal, {"checks": [{"type": "command_output", "command": "a", "text": "b", "files": ["x"]}]}, '"files"'),
    *((Terminal, {"checks": NEVER, "files": files}, '"files"') for files in ({"a": 1}, {"../a": "x"})),
    (Workplace, {"changes": []}, "doing nothing would earn the reward"),
    (Workplace, {"changes": [{"table": "mails", "add": {}}]}, 'each has a "table"'),
    (Workplace, {"changes": [{"table": "mail"}]}, 'one of "add", "set" and "remove"'),
    (Workplace, {**UNCHANGED, "office": {"me": "a", "now": "soon"}}, '"office.now" must be a time'),
    (Workplace, {**UNCHANGED, "office": {**OFFICE, "events": {"e": {}}}}, "'e' lacks attendees"),
]
SETTINGS: dict[Any, Json] = {
    MathWithJudge: {"fast_mode": True},
    EquivalenceLlmJudge: EquivalenceLlmJudge.example_settings(),
    McpTools: McpTools.example_settings(),
    StructuredOutputs: {"executor": "inline"},
}


def environment(owner: Any) -> Any:
    return owner(**SETTINGS.get(owner, {}))


@pytest.mark.parametrize(("owner", "task", "named"), WHEN_SCORED)
def test_a_task_that_cannot_be_scored_is_blamed_by_its_field(owner: Any, task: Json, named: str):
    with pytest.raises(RolloutError, match=named) as caught:
        score(environment(owner), task, "1" if owner is StructuredOutputs else ANSWER)
    assert caught.value.boundary == "input"


def marked(case: tuple[Any, Json, str]) -> Any:
    """What opens a sandbox is slow, and needs one."""
    return pytest.param(*case, marks=pytest.mark.slow) if case[0] in (PythonTool, Terminal) else case


@pytest.mark.parametrize(("owner", "task", "named"), [marked(case) for case in AT_ONCE])
def test_a_task_that_cannot_be_scored_is_blamed_before_the_model_is_asked(owner: Any, task: Json, named: str):
    with pytest.raises(RolloutError, match=named) as caught:
        opened(environment(owner), task)
    assert caught.value.boundary == "input"
