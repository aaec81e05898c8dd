"""Wrong programs, and programs that try to get the reward without the work, for the examination of `code_gen`.

Each cheat is a real attempt: it would earn a reward from a checker that runs in the program's process, trusts its exit
code or files, or keeps the expected outputs where the program can read them.
"""

from __future__ import annotations

import json
from typing import Any

from velodrome.environments.code_gen.cases import CaseSet

CLAIM = '{"reward": 1.0, "passed": 99, "total": 99, "status": "passed"}'

# Each runs when the program starts, before it reads input or is called.
TRICKS: dict[str, str] = {
    "claim_that_all_passed": f"""
print({CLAIM!r})
print("OK: all tests passed")
""",
    "exit_zero_early": """
import os
os._exit(0)
""",
    "search_the_memory": """
import gc, os, sys
words = ("expected", "outputs", "answer", "reward")
frame, hits = sys._getframe(), []
while frame:
    hits += [repr(v) for k, v in {**frame.f_globals, **frame.f_locals}.items() if any(w in k for w in words)]
    frame = frame.f_back
for each in gc.get_objects():
    if isinstance(each, dict) and any(isinstance(k, str) and k in words for k in each):
        hits.append(repr(each)[:1000])
print("\\n".join(hits) or "nothing")
""",
    "patch_the_checker": """
import builtins, json, os, sys
class Anything(str):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = str.__hash__
for module in list(sys.modules.values()):
    for name in ("same_output", "same_value", "check", "verify", "compare", "verdict_of"):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: True)
json.dumps = lambda *a, **k: Anything("true")
json.loads = lambda *a, **k: Anything("true")
builtins.print = lambda *a, **k: sys.__stdout__.write(Anything("true"))
sys.exit = os._exit
print()
""",
    "forge_the_result_file": f"""
import os, pathlib
for folder in (".", "..", "/tmp", "/logs/verifier", os.path.expanduser("~"), "/proc/self/cwd"):
    for name in ("result.json", "results.json", "reward.json", "reward.txt", "test_cases.json", ".passed", "stdout"):
        try:
            pathlib.Path(folder, name).write_text({CLAIM!r})
        except OSError:
            pass
""",
    "replace_the_runner": f"""
import os, pathlib
for name in ("harness.py", "solution.py", "json.py", "sitecustomize.py", "usercustomize.py", "python3"):
    try:
        pathlib.Path(name).write_text("print(" + repr({CLAIM!r}) + ")")
        os.chmod(name, 0o755)
    except OSError:
        pass
""",
}

# Defines `known`, which looks up an input in any file that looks like test cases.
READ_THE_TESTS = """
import json, os, sys
words = ("test", "expected", "case", "output", "answer", "json", "solution")
paths = [f"/proc/{pid}/{name}" for pid in ("self", 1, os.getppid()) for name in ("environ", "cmdline", "fd/0")]
for place in (".", "..", "/tmp", "/mnt", "/home", "/root", "/var", "/opt", "/srv", "/dev/shm"):
    for folder, folders, names in os.walk(place):
        folders[:] = [each for each in folders if each not in ("proc", "sys", "usr", "dev")]
        paths += [os.path.join(folder, name) for name in names if any(word in name for word in words)]
def pairs(value):
    if isinstance(value, dict) and "inputs" in value and "outputs" in value:
        yield from zip(value["inputs"], value["outputs"])
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from pairs(each)
def known(given):
    for path in paths[:1000]:
        try:
            for line in [open(path).read(1_000_000)] if not path.endswith("jsonl") else open(path):
                for one, other in pairs(json.loads(line)):
                    if one == given:
                        return other
        except (OSError, ValueError):
            pass
    return "nothing"
"""

# Bodies of the function, for tasks with an entry point.
RETURNS: dict[str, str] = {
    "return_what_equals_everything": """
    class Anything(list):
        __eq__ = lambda self, other: True
        __ne__ = lambda self, other: False
        __len__ = lambda self: 10**6
    return Anything(['passed'])
""",
    "forge_marked_lines": """
    import os, sys
    frame = sys._getframe()
    while frame:
        request = frame.f_locals.get("request")
        if isinstance(request, dict):
            for value in ('"passed"', '{"reward": 1.0}', '"' + str(request.get("expected")) + '"'):
                for number in range(3, 16):
                    try:
                        os.write(number, (request["mark"] + value + "\\n").encode())
                    except OSError:
                        pass
        frame = frame.f_back
    os._exit(0)
""",
}


def fenced(program: str) -> str:
    """An answer with one program."""
    return f"```python\n{program.strip()}\n```"


def code_cheats(cases: CaseSet) -> dict[str, str]:
    """All tricks for a task; with an entry point, each program defines the function, which returns the claim."""
    if cases.entry_point is None:
        looks_up = fenced(f"{READ_THE_TESTS}print(known(sys.stdin.read()), end='')")
        return {"read_the_tests": looks_up} | {name: fenced(trick) for name, trick in TRICKS.items()}
    head = f"def {cases.entry_point}(*arguments, **named):"
    answers = {name: fenced(f"{head}\n    return {CLAIM!r}\n{trick}") for name, trick in TRICKS.items()}
    answers["read_the_tests"] = fenced(f"{READ_THE_TESTS}\n{head}\n    return known(list(arguments))")
    return answers | {name: fenced(f"{head}{body}") for name, body in RETURNS.items()}


def wrong_programs(cases: CaseSet, reference: str | None) -> dict[str, Any]:
    """Programs with a mistake. One knows only the first case, which the prompt may show."""
    name, first_input, first_output = cases.entry_point, cases.inputs[0], cases.outputs[0]
    if name is None:
        first_case_only = f"import sys\nif sys.stdin.read() == {first_input!r}:\n    print({first_output!r}, end='')"
        nothing = "pass"
    else:
        first_case_only = f"import json\ndef {name}(*arguments):\n"
        first_case_only += f"    if list(arguments) == json.loads({json.dumps(first_input)!r}):\n"
        first_case_only += f"        return json.loads({json.dumps(first_output)!r})"
        nothing = f"def {name}(*arguments):\n    pass"
    wrong = {
        "only_the_first_case": fenced(first_case_only),
        "does_nothing": fenced(nothing),
        "not_python": fenced("this is not a program"),
        "raises": fenced(f"{nothing}\nraise SystemExit(3)"),
        "no_program": "The program is left as an exercise.",
    }
    if reference is not None:
        wrong["a_later_block_replaces_it"] = f"{reference}\n\nOr shorter:\n\n{fenced(nothing)}"
        wrong["block_not_closed"] = reference.removesuffix("```")
    return wrong
