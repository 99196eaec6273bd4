"""The bodies of requests to OpenAI's chat API, and what an agent is asked by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.core.errors import InvalidInput, rename_arguments
from perdure.core.runs import RunOptions
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.domain.agents.options import check_options
from perdure.engine.records.run_request import NewMessage
from perdure.features.openai_front.values import ConversationAnchor
from perdure.library.messages.client_tools import client_tools_of
from perdure.server.wire.base import Part, WireRequest, parse_parts, parse_return
from perdure.server.wire.fields import AgentIdIn, Items, JsonObject, MaxItems, Name, keywords

_EXTRA = ("stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "service_tier", "verbosity")
"""Fields that go to the model as they are."""
_UNREAD = {"image_url": "image", "input_audio": "audio", "file": "file"}
"""A part without a text -> how the chain of a chat names it."""
Tools = Annotated[list[JsonObject], MaxItems("tools_per_agent")]
"""Tools that the caller runs: calls of them are in the answer, and their results in the next request."""


class CompletionMessage(WireRequest):
    """One message. `content` may be missing beside a tool call of an earlier answer."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Items[Part] | None = None
    name: str | None = None
    tool_call_id: Name | None = None

    @property
    def text(self) -> str:
        """The message's texts, one on each line."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(one["text"] for one in self.content if isinstance(one.get("text"), str))

    @property
    def said(self) -> str:
        """Its texts; the kind of its first part, where it has none."""
        if isinstance(self.content, str) or not self.content:
            return self.text
        return self.text or f"[{_UNREAD.get(str(self.content[0].get('type')), 'image')}]"


def function_shapes(tools: Sequence[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    """The caller's functions as a run stores them; None: none. Raises: InvalidInput: one can't be a tool."""
    shapes: list[Mapping[str, Any]] = []
    for place, tool in enumerate(tools or ()):
        if (kind := tool.get("type", "function")) != "function":
            raise InvalidInput(f"tools.{place}: {kind!r:.60} is no function, and only functions are taken here")
        one = tool.get("function", tool)
        if not isinstance(one, Mapping):
            raise InvalidInput(f"tools.{place}.function: it is {one!r:.80}: give its name and parameters")
        shapes.append({name: one[name] for name in ("name", "description", "parameters") if one.get(name) is not None})
    return client_tools_of(shapes).shapes or None


class ChatBody(WireRequest):
    """What requests to an agent have in common with those to a model with memory."""

    messages: Annotated[list[CompletionMessage], MaxItems("imports_per_request"), keywords(minItems=1)]
    stream: bool | None = False
    stream_options: JsonObject | None = None
    functions: Any = None
    function_call: str | JsonObject | None = None

    @property
    def with_usage(self) -> bool:
        """Whether a stream ends with the tokens that it took."""
        return bool((self.stream_options or {}).get("include_usage"))

    @property
    def newest(self) -> int:
        """The place behind the last answer."""
        roles = [message.role for message in self.messages]
        return len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0

    def new_contents(self) -> tuple[Sequence[NewMessage], Sequence[Answer]]:
        """The users' messages and tool results after the last answer. Raises: InvalidInput, NotSupported."""
        if self.functions or self.function_call not in (None, "auto", "none"):
            raise InvalidInput("functions and function_call are of OpenAI's older API: use tools and tool_choice")
        new: list[NewMessage] = []
        answers: list[Answer] = []
        for index, message in enumerate(self.messages[self.newest :], start=self.newest):
            where = f"messages.{index}.content"
            if message.role == "user":
                new.append(NewMessage(parse_parts(message.content or "", where), "user", message.name))
            elif message.role == "tool":
                text, images = parse_return(message.content or "", where)
                answers.append(ToolReturn(message.tool_call_id or "", text, images=images))
        if not new and not answers:
            raise InvalidInput("messages: no user says anything after the last answer, so there is none to give")
        return new, answers


class CompletionRequest(ChatBody):
    """A request to an agent in OpenAI's shape. Only what users said since the last answer is sent, and what the
    caller's tools returned: the agent knows the rest, has its own instructions, and calls its own tools itself."""

    model: Annotated[AgentIdIn, Field(description="The id of an agent.")]
    messages: Annotated[list[CompletionMessage], MaxItems("messages_per_request"), keywords(minItems=1)]
    tools: Tools | None = None


class AnswerOptions(WireRequest):
    """What requests of both APIs say of an answer."""

    model: Annotated[str, Field(description="The name or id of an agent, or memory/ and the handle of a model.")]
    stream: bool | None = False
    tools: Tools | None = None
    tool_choice: str | JsonObject | None = None
    temperature: float | None = None
    top_p: float | None = None
    parallel_tool_calls: bool | None = None
    user: str | JsonObject | None = None
    metadata: JsonObject | None = None
    top_logprobs: int | None = None
    service_tier: str | None = None


class ChatRequest(ChatBody, AnswerOptions):
    """A request to an agent, or to a model with memory (`memory/HANDLE`). The whole chat may be sent again each time:
    only what is new is added to its conversation. An agent gives one answer: `n` can be 1 only."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: JsonObject | None = None
    reasoning_effort: str | None = None
    logprobs: bool | None = None
    n: int | None = None
    stop: str | Items[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: JsonObject | None = None
    verbosity: str | None = None

    def anchor(self, name: str | None) -> ConversationAnchor:
        """How the request names its conversation: by `name`, else `metadata.conversation`; and its `user`."""
        user = self.user.get("id") if isinstance(self.user, dict) else self.user
        return ConversationAnchor(
            name=str(name or (self.metadata or {}).get("conversation") or ""), user=str(user or "")
        )

    @property
    def tools_offered(self) -> tuple[Mapping[str, Any], ...] | None:
        """The caller's tools that may be called. Raises: InvalidInput."""
        return None if self.tool_choice == "none" else function_shapes(self.tools)

    @property
    def run_options(self) -> RunOptions:
        """What the request sets for the answer, by the names of an agent's settings. Raises: InvalidInput."""
        if self.n not in (None, 1):
            raise InvalidInput(f"n is {self.n}: an agent gives one answer")
        names, form = [one["name"] for one in self.tools_offered or ()], self.response_format
        settings = self.non_null("temperature", "top_p", "reasoning_effort")
        others = {
            "parallel_tool_calls": self.parallel_tool_calls if names else None,
            "tool_choice": self._tool_choice(names),
            "max_output_tokens": self.max_completion_tokens or self.max_tokens,
            "response_format": None if form is None or form.get("type") == "text" else form,
            "extra": self.non_null(*_EXTRA) or None,
        }
        settings |= {name: value for name, value in others.items() if value is not None}
        limit = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
        with rename_arguments({"max_output_tokens": limit}):
            check_options(settings, {})
        return RunOptions(settings=settings, logprobs=bool(self.logprobs), top_logprobs=self.top_logprobs)

    def _tool_choice(self, names: Sequence[str]) -> list[str] | None:
        """Return the caller's tools of which one has to be called; None: a call is optional. Raises: InvalidInput."""
        choice = self.tool_choice
        if choice in (None, "auto", "none"):
            return None
        if not names:
            raise InvalidInput("tool_choice is only allowed when tools are given")
        if choice == "required":
            return list(names)
        shown = f"{choice}"
        if isinstance(choice, dict):
            function = choice.get("function")
            name = choice.get("name") or (function.get("name") if isinstance(function, dict) else None)
            if name in names:
                return [str(name)]
            shown = f"the function {name!r:.80}"
        raise InvalidInput(f"tool_choice is {shown}: give auto, none, required, or one of the functions in tools")

    @property
    def system(self) -> str:
        """What the program says to the model beside the chat."""
        return "\n\n".join(one.text for one in self.messages if one.role in ("system", "developer") and one.text)
