"""A model that an environment refers to, such as a judge: one call returns the `Response` type that `verify` gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from velodrome.context import seeded
from velodrome.contracts import Model, as_model
from velodrome.errors import ModelError, blame
from velodrome.http.limiter import Limiter
from velodrome.rates import counting
from velodrome.records.conversation import Response
from velodrome.records.turns import answer_flaw
from velodrome.timing.spans import span

Json = dict[str, Any]


class LinkedModel:
    """`await self.judge.ask("…")`. It is also a `Model`: all other attributes are the model's."""

    def __init__(self, name: str, model: Model, limiter: Limiter) -> None:
        self._name = name
        self._model = self.__wrapped__ = model
        self._limiter = limiter

    async def ask(self, prompt: str | list[Json], **params: Any) -> Response:
        """The answer to a prompt, a text or messages; `params` are fields of the request (`temperature`, …).

        Waiting for a slot is not charged to the call. An answer that cannot be used is a `ModelError`; the environment
        turns it into an error of the calling code, so that the model of the rollout is not blamed.
        """
        request = {**params, "input": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt}
        request = seeded(request, self._name)
        with span("judge"), blame(ModelError, self._name):
            async with self._limiter:
                try:
                    raw = await counting(self._model.respond)(request)
                except ModelError as error:
                    raise ModelError(f"{self._name}: {error}", status=error.status) from error
        problem = answer_flaw(raw)
        if problem is not None:
            raise ModelError(f"{self._name}: {problem}")
        return Response(raw)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_model, (self._model,)  # a copy of the environment links its models again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def link_models(owner: Any, names: Iterable[str], max_concurrent: int) -> None:
    """Replace the models in these attributes by linked models that share a limit of concurrent calls."""
    limiter = Limiter("judge", max_concurrent, "judge_max_concurrent")
    for name in names:
        model = getattr(owner, name)
        setattr(owner, name, model if isinstance(model, LinkedModel) else LinkedModel(name, model, limiter))
