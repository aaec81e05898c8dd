"""Several choices of one chat request, and which model a name means."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import hosted as hosting
import openai
import pytest
from patience import DEADLINE_S
from streams import client

from velodrome import http
from velodrome.errors import InputError, ModelError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]
MODEL, AGENT = "responses_api_models", "responses_api_agents"
MESSAGES: Any = [{"role": "user", "content": "Go."}]


class Recording:
    """Answers with how many calls came before, keeps the requests; `meet` calls wait for each other."""

    def __init__(self, meet: int = 1) -> None:
        self.requests: list[Json] = []
        self._all_here = asyncio.Event()
        self._meet = meet

    async def respond(self, request: Json) -> Json:
        number = len(self.requests)
        self.requests.append(request)
        if len(self.requests) == self._meet:
            self._all_here.set()
        await asyncio.wait_for(self._all_here.wait(), DEADLINE_S)
        usage = {"input_tokens": 3, "output_tokens": 1 + number, "total_tokens": 4 + number}
        message = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"answer {number}"}],
        }
        return {"id": f"resp_{number}", "status": "completed", "output": [message], "usage": usage}

    async def aclose(self) -> None: ...


class FirstFails:
    """The first call fails once the second waits; `cancelled` says that the second was given up."""

    def __init__(self) -> None:
        self.calls = 0
        self.second = asyncio.Event()
        self.cancelled = threading.Event()

    async def respond(self, request: Json) -> Json:
        self.calls += 1
        if self.calls == 1:
            await self.second.wait()
            raise ModelError("no more", status=429)
        self.second.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError

    async def aclose(self) -> None: ...


def served(kind: str, model: Any) -> Any:
    def make() -> Any:
        return SimpleAgent(model=model, environment=Calculator()) if kind == AGENT else model

    return hosting.hosted(kind, make)


@pytest.mark.parametrize("kind", [MODEL, AGENT])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_n_choices_are_n_calls_at_the_same_time_and_usage_is_their_sum(kind: str, stream: bool) -> None:
    model = Recording(meet=4)
    texts, usage = {}, None
    with served(kind, model) as url, client(url) as asker:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = asker.chat.completions.create(model="m", messages=MESSAGES, n=4, seed=7, **options)
        if stream:
            chunks = list(answer)
            for choice in (choice for chunk in chunks for choice in chunk.choices):
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            assert len({chunk.id for chunk in chunks}) == 1
            assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
            assert [choice.finish_reason for chunk in chunks for choice in chunk.choices].count("stop") == 4
            usage = chunks[-1].usage
        else:
            texts = {choice.index: choice.message.content for choice in answer.choices}
            usage = answer.usage
    assert sorted(texts) == [0, 1, 2, 3]
    assert sorted(texts.values()) == [f"answer {number}" for number in range(4)]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (12, 10, 22)
    assert sorted(request["seed"] for request in model.requests) == [7, 8, 9, 10]
    assert all("n" not in request for request in model.requests)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_choice_that_fails_fails_the_call_and_the_others_are_cancelled(stream: bool) -> None:
    model = FirstFails()
    with served(MODEL, model) as url, client(url) as asker:
        with pytest.raises(openai.RateLimitError, match="no more"):
            asker.chat.completions.create(model="m", messages=MESSAGES, n=2, stream=stream)
        assert model.cancelled.wait(DEADLINE_S)  # before the server ends, which cancels whatever runs


class Raising:
    """Each call raises the next of these errors, all in the same turn of the loop."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)

    async def respond(self, request: Json) -> Json:
        raise self.errors.pop(0) if self.errors else AssertionError

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("errors", "status", "message"),
    [
        ((SystemExit(3), SystemExit(4)), 502, "model: SystemExit: 3"),
        ((KeyError("x"), KeyError("y")), 502, "model: KeyError: 'x'"),
        ((ModelError("slower", status=429), KeyError("x")), 429, "slower"),
        ((InputError("wrong"), KeyError("x")), 503, "wrong"),
    ],
    ids=["exit", "a fault", "a status", "another error of ours"],
)
def test_of_several_choices_that_fail_the_first_error_is_the_answer_and_the_server_continues(
    errors: tuple[BaseException, ...], status: int, message: str, stream: bool
) -> None:
    with served(MODEL, Raising(*errors)) as url, client(url) as asker:
        with pytest.raises(openai.APIStatusError) as caught:
            asker.chat.completions.create(model="m", messages=MESSAGES, n=2, stream=stream)
        assert [model.id for model in asker.models.list()] == ["hosted"]
    assert (caught.value.status_code, caught.value.body["message"]) == (status, message)  # type: ignore[index]


@pytest.mark.parametrize("number", [0, -1, 129, 1.5, "2", True])
def test_an_n_that_cannot_be_is_refused(number: Any) -> None:
    with served(MODEL, ScriptedModel(answers=["x"])) as url, client(url) as asker:
        with pytest.raises(openai.BadRequestError, match='"n" must be a whole number from 1 to 128') as caught:
            asker.chat.completions.create(model="m", messages=MESSAGES, n=number)
        assert caught.value.param == "n"
        assert len(asker.chat.completions.create(model="m", messages=MESSAGES, n=None).choices) == 1


@pytest.mark.parametrize("kind", [MODEL, AGENT])
def test_the_listed_id_and_no_model_mean_the_model_of_the_config_and_other_names_are_passed_on(kind: str) -> None:
    model = Recording()
    with served(kind, model) as url, client(url) as asker:
        (listed,) = asker.models.list()
        for name in (listed.id, "", "another"):
            asker.responses.create(model=name, input="Go.")
            asker.chat.completions.create(model=name, messages=MESSAGES)
    assert [request.get("model") for request in model.requests] == [None] * 4 + ["another"] * 2


def test_a_model_is_found_by_its_id_and_no_other() -> None:
    with served(MODEL, ScriptedModel(answers=["x"])) as url, client(url) as asker:
        (listed,) = asker.models.list()
        assert asker.models.retrieve("hosted") == listed
        assert listed.created > 0
        with pytest.raises(openai.NotFoundError) as caught:
            asker.models.retrieve("org/another one")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "'org/another one'" in caught.value.message


PROBS = [{"token": each, "logprob": prob, "bytes": [], "top_logprobs": []} for each, prob in (("a", -0.5), ("b", -1.0))]
TOKENS = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [4, 5], "generation_log_probs": [-0.5, -1.0]}


def test_token_ids_are_where_vllm_has_them_and_our_own_client_reads_them() -> None:
    part = {"type": "output_text", "text": "ab", "annotations": [], "logprobs": PROBS}
    message = {"type": "message", "role": "assistant", "content": [part], **TOKENS}

    async def read(url: str) -> list[Json]:
        model = OpenAI(openai_base_url=f"{url}/v1", openai_model="hosted", endpoint="chat", max_retries=0)
        try:
            whole = await model.respond({"input": "Go."})
            *_, last = [event async for event in model.stream({"input": "Go."})]
            return [whole["output"][-1], last["response"]["output"][-1]]
        finally:
            await http.close_shared()

    with served(MODEL, ScriptedModel(answers=[{"id": "r", "output": [message]}])) as url, client(url) as asker:
        whole = asker.chat.completions.create(model="m", messages=MESSAGES, n=2)
        chunks = list(asker.chat.completions.create(model="m", messages=MESSAGES, stream=True))
        ours = asyncio.run(read(url))
    assert whole.to_dict()["prompt_token_ids"] == [1, 2, 3]
    assert [choice.to_dict()["token_ids"] for choice in whole.choices] == [[4, 5]] * 2
    assert [chunk.to_dict().get("prompt_token_ids") for chunk in chunks if chunk.model_extra] == [[1, 2, 3]]
    pieces = [choice.to_dict().get("token_ids") or [] for chunk in chunks for choice in chunk.choices]
    assert [token for piece in pieces for token in piece] == [4, 5]  # type: ignore[attr-defined]
    assert [{name: item[name] for name in TOKENS} for item in ours] == [TOKENS] * 2


@pytest.mark.parametrize("kind", [MODEL, AGENT])
def test_a_request_that_needs_a_stored_response_is_refused_with_the_way_out(kind: str) -> None:
    with served(kind, ScriptedModel(answers=["x"])) as url, client(url) as asker:
        with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
            asker.responses.create(model="m", input="Go.", previous_response_id="resp_1")
        with pytest.raises(openai.NotFoundError, match="send the whole conversation"):
            asker.responses.retrieve("resp_1")
