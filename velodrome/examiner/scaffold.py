"""The files of a new environment: a small working one, to change step by step.

`$name` and `$Class` are placeholders.
"""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template

import orjson

from velodrome.errors import InputError
from velodrome.settings.files import PACKAGE, implementations
from velodrome.settings.names import RESOURCES

APP = '''\
"""A shop: the model looks prices up with a tool and says what a basket costs."""

from __future__ import annotations

from typing import Any

from velodrome import Environment, Response, tool
from velodrome.errors import TaskError

PRICES = {"apple": 3, "bread": 4, "cheese": 7, "milk": 2, "pear": 5}


class $Class(Environment):
    """The reward is 1.0 if the last word of the answer is the right total and every price was looked up."""

    @tool
    def get_price(self, item: str) -> int:
        """The price of one item.

        item: its name, for example apple
        """
        if item.lower() not in PRICES:
            raise ValueError(f"no {item[:40]!r} in this shop; there are {', '.join(PRICES)}")
        return PRICES[item.lower()]

    def verify(self, task: dict[str, Any], response: Response) -> dict[str, Any]:
        if "basket" not in task:
            raise TaskError('no "basket" in the task')
        calls = [call.arguments for call in response.tool_calls if call.name == "get_price"]
        looked_up = {str(each.get("item")).lower() for each in calls if isinstance(each, dict)}
        words = response.text.split()
        said = words[-1].strip(".$$") if words else ""
        right = said == str(total(task)) and looked_up >= set(task["basket"])
        return {"reward": float(right), "looked_up": len(looked_up), "said": said}

    # What follows is for `velo test`.

    def reference_answer(self, task: dict[str, Any]) -> Any:
        """One entry per model call: first the tool calls, then the final text."""
        calls = [{"name": "get_price", "arguments": {"item": item}} for item in sorted(set(task["basket"]))]
        return [{"tool_calls": calls}, f"The total is {total(task)}."]

    def wrong_answers(self, task: dict[str, Any]) -> dict[str, Any]:
        looking, _ = self.reference_answer(task)
        return {
            "one more": [looking, f"The total is {total(task) + 1}."],
            "not the last word": [looking, f"{total(task)} is the total."],
            "one price only": [{"tool_calls": looking["tool_calls"][:1]}, "The total is 1."],
        }

    def cheats(self, task: dict[str, Any]) -> dict[str, Any]:
        """Ways to the reward without the work. Think of your own: whatever a model could try."""
        looking, _ = self.reference_answer(task)
        return {
            "not looked up": f"The total is {total(task)}.",
            "says that it looked": f"get_price(apple) -> 3. The total is {total(task)}",
            "many totals": [looking, "The total is one of " + " ".join(map(str, range(100)))],
            "for the checker": [looking, '{"reward": 1.0}'],
        }


def total(task: dict[str, Any]) -> int:
    """What the basket of a task costs."""
    return sum(PRICES[item] for item in task["basket"])
'''
CONFIG = """\
$name:
  resources_servers:
    $name:
      entrypoint: app.py
      domain: other
      verified: false
      description: A shop with a tool for prices
${name}_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: $name
      model_server:
        type: responses_api_models
        name: policy_model
      datasets:
      - name: example
        type: example
        jsonl_fpath: resources_servers/$name/data/example.jsonl
"""
README = """\
# $name

A shop: the model looks prices up with a tool and says what a basket costs.

| | |
|---|---|
| task | `basket`: a list of items |
| tool | `get_price(item)` |
| score | `reward`: 1.0 if the last word of the answer is the total and every price was looked up; `looked_up`; `said` |

Cheats that earn nothing: a total without a look-up, many totals, words for the checker.

```bash
velo test $name
```
"""
TEST = '''\
"""The environment keeps the rules of `velo test`; the tests of what is special to it go below."""

from __future__ import annotations

import asyncio
from pathlib import Path

import velodrome


def test_it_keeps_the_rules() -> None:
    report = asyncio.run(velodrome.examine(Path(__file__).parent.parent, strict=True))
    assert report.passed, report
'''
SYSTEM = "You work in a shop. Look up every price with the tool. End with: The total is N."
BASKETS = {
    "one-apple": ("What does one apple cost?", ["apple"]),
    "bread-and-milk": ("I take a bread and a milk. What is the total?", ["bread", "milk"]),
    "two-pears": ("Two pears, please. What do I owe?", ["pear", "pear"]),
    "breakfast": ("Bread, cheese and milk for breakfast. What is the total?", ["bread", "cheese", "milk"]),
    "fruit": ("Three apples and two pears. How much is that?", ["apple", "apple", "apple", "pear", "pear"]),
    "big-breakfast": (
        "Two breads, a cheese, a milk and a pear. How much?",
        ["bread", "bread", "cheese", "milk", "pear"],
    ),
}


def scaffold(name: str, cwd: Path) -> list[Path]:
    """Write the folder of a new environment, and return its files."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or name != name.lower():
        raise InputError(f"{name!r:.80}: a name has small letters, digits and _, and starts with a letter: my_shop")
    if name in implementations(RESOURCES, PACKAGE):
        raise InputError(f"{name}: there is a built-in environment of this name; choose another (see velo envs)")
    folder = cwd / RESOURCES / name
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{RESOURCES}/{name} is there already; choose another name, or remove it")
    words = {"name": name, "Class": "".join(part.capitalize() for part in name.split("_")) or "Shop"}
    texts = {
        "app.py": APP,
        f"configs/{name}.yaml": CONFIG,
        "README.md": README,
        f"tests/test_{name}.py": TEST,
    }
    files = {folder / path: Template(text).substitute(words) for path, text in texts.items()}
    files[folder / "data" / "example.jsonl"] = _examples()
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return list(files)


def _examples() -> str:
    rows = []
    for task_id, (question, basket) in BASKETS.items():
        prompt = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        rows.append({"id": task_id, "responses_create_params": {"input": prompt}, "basket": basket})
    return "".join(f"{orjson.dumps(row).decode()}\n" for row in rows)
