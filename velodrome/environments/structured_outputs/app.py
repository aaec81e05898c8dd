"""Structured outputs: one JSON value, valid by the task's schema and with the expected content.

`verify` is `async def`: what could take long is checked in a process that can be ended.
"""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from velodrome.environments.structured_outputs.schema import (
    SHORT_BYTES,
    NotOneValue,
    SchemaCheck,
    checks_of,
    is_bounded_schema,
    json_text,
    json_value,
    met,
    problems,
    schema_text,
    validator_of,
)
from velodrome.errors import InputError, VerifyError
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment
from velodrome.settings.component import Field

Json = dict[str, Any]


class StructuredOutputs(Environment):
    """The reward is 1.0 for one JSON value that is valid and has everything that is `expected`."""

    partial: bool = Field(False, description="a valid value earns the share of `expected` that it has, not all or none")
    text_around: bool = Field(False, description="allow text before and after the one fenced block")
    check_formats: bool = Field(False, description="`format` of a schema counts (dates, addresses)")
    max_answer_bytes: int = Field(100_000, gt=0, description="longer answers earn nothing")
    check_timeout_s: float = Field(
        10.0, gt=0, description="one check by a schema that may take long, such as one with patterns"
    )

    def setup(self) -> None:
        """The process for slow schemas starts when it is needed."""
        if importlib.util.find_spec("jsonschema") is None:
            raise InputError('structured_outputs needs jsonschema: pip install "velodrome[environments]"')
        settings: Json = {"worker_processes": self.worker_processes, "worker_memory_mb": self.worker_memory_mb}
        self._elsewhere = SchemaCheck(executor="process", verify_timeout_s=self.check_timeout_s, **settings)

    async def seed_session(self, task: Json) -> None:
        """A schema that cannot be used is reported before the model is asked."""
        if "schema" in task or "schema_str" in task:
            validator_of(schema_text(task), self.check_formats)
        checks_of(task)

    async def verify(self, task: Json, response: Response) -> Json:
        """`valid`, the share of `expected` that was met as `content`, and what is wrong."""
        text, checks = schema_text(task), checks_of(task)
        validator_of(text, self.check_formats)
        try:
            value = json_value(json_text(response.text, around=self.text_around), self.max_answer_bytes)
        except NotOneValue as error:
            return {"reward": 0.0, "valid": 0.0, "content": 0.0, "problems": [str(error)]}
        problems = await self._problems(text, value, len(response.text))
        unmet = [pointer for pointer, wanted in checks.items() if not met(value, pointer, wanted)]
        content = 1.0 - len(unmet) / len(checks) if checks else 1.0
        earned = content if self.partial else float(not unmet)
        return {
            "reward": 0.0 if problems else earned,
            "valid": float(not problems),
            "content": content,
            "problems": problems or [f"{pointer}: not as expected" for pointer in unmet[:5]],
        }

    async def _problems(self, text: bytes, value: Any, length: int) -> list[str]:
        """Here if it cannot take long, else in a process."""
        if self.executor == "inline" or (length <= SHORT_BYTES and is_bounded_schema(text)):
            return problems(text, value, self.check_formats)
        check = {"text": text, "value": value, "formats": self.check_formats}
        try:
            score = await self._elsewhere.score("", check, {"output": []})
        except VerifyError as error:
            raise VerifyError(f"schema: {error} (check_timeout_s; does it have a pattern that backtracks?)") from error
        reasons: list[str] = score["problems"]
        return reasons

    async def aclose(self) -> None:
        """End the processes too."""
        await super().aclose()
        await self._elsewhere.aclose()

    def reference_answer(self, task: Json) -> str | None:
        """The task's `reference`, if it has one."""
        return json.dumps(task["reference"], ensure_ascii=False) if "reference" in task else None

    def wrong_answers(self, task: Json) -> Json:
        """Values that lack something, or are not JSON."""
        reference = self.reference_answer(task) or "{}"
        value = json.loads(reference)
        wrong = {"cut off": reference[:-1], "in quotes": json.dumps(reference), "in a list": json.dumps([value])}
        if isinstance(value, dict) and value:
            wrong["a key is missing"] = json.dumps(dict(list(value.items())[1:]))
            wrong["nulls"] = json.dumps(dict.fromkeys(value))
        return wrong

    def cheats(self, task: Json) -> Json:
        """Empty shells, several candidates, and what only a lenient reader takes."""
        reference = self.reference_answer(task) or "{}"
        fence = f"```json\n{reference}\n```"
        return {
            "an empty object": "{}",
            "an empty list": "[]",
            "null": "null",
            "true": "true",
            "the schema": json.dumps(task.get("schema") or {}),
            "claims": '{"valid": true, "reward": 1.0}',
            "two values": f"{reference}\n{reference}",
            "two blocks": f"{fence}\n\n{fence}",
            "candidates": f"[{reference}, {reference}, {{}}]",
            "a key twice": reference.replace("{", '{"a": 1, "a": 2, ', 1)
            if reference.startswith("{")
            else '{"a":1,"a":2}',
            "a trailing comma": reference[:-1] + "," + reference[-1],
            "comments": f"// the answer\n{reference}",
            "not a number": '{"value": NaN}',
            "endless": '{"value": 1e999}',
            "deep": '{"a":' * 5000 + "1" + "}" * 5000,
            "text around": f"Here it is: {reference}",
            "only thought": f"<think>{reference}</think>",
        }
