"""The types of requests and answers that resources servers of NeMo Gym read, in OpenAI's shapes.

They are for folders that run here without that package. They keep every field of their input; missing fields are None
or empty.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class GymShape(BaseModel):
    """A model that keeps unknown fields."""

    model_config = ConfigDict(extra="allow")


class NeMoGymSummary(GymShape):
    text: str
    type: Literal["summary_text"] = "summary_text"


class NeMoGymResponseReasoningItem(GymShape):
    id: str = ""
    summary: list[NeMoGymSummary] = Field(default_factory=list)
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None


class NeMoGymResponseOutputText(GymShape):
    annotations: list[Any] = Field(default_factory=list)
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[Any] | None = None


class NeMoGymResponseOutputRefusal(GymShape):
    refusal: str
    type: Literal["refusal"] = "refusal"


NeMoGymContent = NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal


class NeMoGymResponseOutputMessage(GymShape):
    id: str = ""
    content: list[NeMoGymContent]
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"] | None = "completed"
    type: Literal["message"] = "message"


class NeMoGymEasyInputMessage(GymShape):
    content: str | list[Any]
    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"


class NeMoGymFunctionCallOutput(GymShape):
    call_id: str
    output: str | list[Any]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: str | None = None


class NeMoGymResponseFunctionToolCall(GymShape):
    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: str | None = None


NeMoGymMessage = NeMoGymEasyInputMessage
NeMoGymResponseInputItem = Annotated[
    NeMoGymResponseOutputMessage
    | NeMoGymEasyInputMessage
    | NeMoGymResponseFunctionToolCall
    | NeMoGymFunctionCallOutput
    | NeMoGymResponseReasoningItem,
    Field(union_mode="left_to_right"),
]
NeMoGymResponseOutputItem = NeMoGymResponseInputItem
NeMoGymResponseInput = list[NeMoGymResponseInputItem]


class NeMoGymResponseCreateParamsNonStreaming(GymShape):
    input: str | NeMoGymResponseInput
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, Any] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    reasoning: dict[str, Any] | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: Any = "auto"
    tools: list[Any] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None


class NeMoGymResponseInputTokensDetails(GymShape):
    cached_tokens: int = 0


class NeMoGymResponseOutputTokensDetails(GymShape):
    reasoning_tokens: int = 0


class NeMoGymResponseUsage(GymShape):
    input_tokens: int = 0
    input_tokens_details: NeMoGymResponseInputTokensDetails = Field(default_factory=NeMoGymResponseInputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: NeMoGymResponseOutputTokensDetails = Field(
        default_factory=NeMoGymResponseOutputTokensDetails
    )
    total_tokens: int = 0


class NeMoGymResponse(GymShape):
    id: str = ""
    created_at: float = 0.0
    model: str = ""
    object: Literal["response"] = "response"
    output: list[NeMoGymResponseOutputItem]
    parallel_tool_calls: bool = True
    tool_choice: Any = "auto"
    tools: list[Any] = Field(default_factory=list)
    error: Any = None
    incomplete_details: Any = None
    instructions: Any = None
    metadata: dict[str, Any] | None = None
    status: str | None = None
    usage: NeMoGymResponseUsage | None = None

    @property
    def output_text(self) -> str:
        """The text of all messages."""
        messages = [item for item in self.output if isinstance(item, NeMoGymResponseOutputMessage)]
        parts = [part for message in messages for part in message.content]
        return "".join(part.text for part in parts if isinstance(part, NeMoGymResponseOutputText))


class NeMoGymFunction(GymShape):
    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCall(GymShape):
    id: str
    function: NeMoGymFunction
    type: Literal["function"] = "function"


class NeMoGymChatCompletionMessage(GymShape):
    content: str | None = None
    refusal: str | None = None
    role: Literal["assistant"] = "assistant"
    tool_calls: list[NeMoGymChatCompletionMessageToolCall] | None = None


class NeMoGymChoice(GymShape):
    finish_reason: str | None = None
    index: int = 0
    message: NeMoGymChatCompletionMessage


class NeMoGymChatCompletion(GymShape):
    id: str = ""
    choices: list[NeMoGymChoice]
    created: int = 0
    model: str = ""
    object: Literal["chat.completion"] = "chat.completion"
    usage: Any = None


class NeMoGymChatCompletionCreateParamsNonStreaming(GymShape):
    messages: list[Any]
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
