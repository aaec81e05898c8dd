"""Turn data whose tests are Python asserts (HumanEval, MBPP) into tasks of `code_gen`.

    python examples/humaneval_tasks.py HumanEval.jsonl tasks.jsonl

An assert runs beside the program that it tests, where the program can make it pass. A case is data: the arguments go
into the sandbox, and the value is compared outside. So `assert f(2) == 4` becomes the case [2] -> 4. Asserts that are
not of such a form are left out and counted; a task without any case is left out.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

SYSTEM = "You write Python 3. End with the whole program in one ```python code block."


def case_of(test: ast.expr, names: set[str]) -> tuple[list[Any], Any] | None:
    """The arguments and the value of an assert's condition; None if it is of another form."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:  # `assert f(x)` is no value: what is true is not said
        return None
    call, value = test.left, literal(test.comparators[0])
    if isinstance(test.ops[0], ast.Lt | ast.LtE):  # abs(f(x) - 1.5) < 1e-6
        near = call.args[0] if isinstance(call, ast.Call) and call.args else None
        if not isinstance(near, ast.BinOp) or not isinstance(near.op, ast.Sub):
            return None
        call, value = near.left, literal(near.right)
    elif not isinstance(test.ops[0], ast.Eq | ast.Is):
        return None
    if not isinstance(call, ast.Call) or call.keywords or ast.unparse(call.func) not in names:
        return None
    arguments = [literal(each) for each in call.args]
    return (arguments, value) if is_json(arguments) and is_json(value, tuples=True) else None


def literal(node: ast.expr) -> Any:
    """A value that is written out; an object that JSON does not know if it is not."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return node


def is_json(value: Any, *, tuples: bool = False) -> bool:
    """Whether JSON keeps a value as it is; a tuple may be a list where only its items count."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_json(each, tuples=tuples) for key, each in value.items())
    if isinstance(value, list) or (tuples and isinstance(value, tuple)):
        return all(is_json(each, tuples=tuples) for each in value)
    return value is None or isinstance(value, str | int | float)


def task_of(row: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
    """The task of a row, and how many of its asserts were left out."""
    tests = row["test"] if "test" in row else "\n".join(row["test_list"])  # HumanEval, MBPP
    conditions = [node.test for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Assert)]
    name = row.get("entry_point") or next(
        node.func.id
        for condition in conditions
        for node in ast.walk(condition)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    found = [case_of(condition, {"candidate", name}) for condition in conditions]
    cases = [case for case in found if case is not None]
    prompt = row.get("prompt") or row["text"]
    imports = [line for line in prompt.splitlines() if line.startswith(("import ", "from ")) and "import" in line]
    task = {
        "id": str(row["task_id"]),
        "responses_create_params": {
            "input": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"Write the function `{name}`.\n\n{prompt}"},
            ]
        },
        "entry_point": name,
        "test_cases": {"inputs": [case[0] for case in cases], "outputs": [case[1] for case in cases]},
        "prelude": "".join(f"{line}\n" for line in imports),
    }
    return task if cases else None, len(conditions) - len(cases)


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    made = [task_of(row) for row in rows]
    tasks = [task for task, _ in made if task is not None]
    target.write_text("".join(f"{json.dumps(task)}\n" for task in tasks), encoding="utf-8")
    print(f"{len(tasks)} tasks of {len(rows)} rows; {sum(count for _, count in made)} asserts were left out")


if __name__ == "__main__":
    main()
