"""A model that an environment refers to, such as a judge: one call, and the same `Response` that `verify` is given."""

from __future__ import annotations

import asyncio
from typing import Any

from velodrome.contracts import Model
from velodrome.errors import ModelError, blame
from velodrome.records.conversation import Response
from velodrome.records.model_answer import answer_flaw
from velodrome.timing.spans import acquired, span

Json = dict[str, Any]


class LinkedModel:
    """`await self.judge.ask("…")`. It is a `Model` too: `respond` and the rest are those of the model."""

    def __init__(self, name: str, model: Model, max_concurrent: int) -> None:
        self._name = name
        self._model = model
        self._free = asyncio.Semaphore(max_concurrent)

    async def ask(self, prompt: str | list[Json], **params: Any) -> Response:
        """The answer to a prompt, a text or messages; `params` are fields of the request (`temperature`, …).

        Waiting for a slot is not charged to the call. An answer that cannot be used is a `ModelError`; the environment
        turns it into the error of the code that asked, so that the model of the rollout is not blamed.
        """
        request = {**params, "input": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt}
        with span("judge"), blame(ModelError, self._name):
            await acquired(self._free)
            try:
                raw = await self._model.respond(request)
            except ModelError as error:
                raise ModelError(f"{self._name}: {error}", status=error.status) from error
            finally:
                self._free.release()
        problem = answer_flaw(raw)
        if problem is not None:
            raise ModelError(f"{self._name}: {problem}")
        return Response(raw)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def is_model(value: Any) -> bool:
    """Whether a setting is a model that can be asked."""
    return hasattr(value, "respond") and not hasattr(value, "run") and not isinstance(value, LinkedModel)
