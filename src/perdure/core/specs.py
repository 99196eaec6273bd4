"""Tools for the model and the engine. `domain.tools` runs the built-in ones, `toolbox` the foreign ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from perdure.core.agents import Agent
from perdure.core.blocks import Block, MemoryEdit
from perdure.core.ids import AgentId, ToolId
from perdure.core.messages import Image, Question, ToolCall, ToolResult, ToolStatus
from perdure.core.passages import Passage
from perdure.core.secrets import REFERENCE
from perdure.core.sources import Source
from perdure.core.text.forms import in_name_form
from perdure.core.text.reprs import short_repr

ToolKind = Literal["memory", "function", "custom", "builtin", "agents", "helpers", "skills", "mcp", "client"]
"""What runs a tool, and where.

- `memory` tools edit or search the agent's own store, inside the transaction that stores their result. All others are
  foreign: such a call is started, may fail or be interrupted, and its effects are its own.
- A `function` belongs to this program and runs in its process.
- A `custom` tool is somebody's source (`ToolCode`), run in the sandbox.
- A `builtin` is ours: it runs code in the sandbox, or reaches the web.
- An `agents` tool writes to other agents, which answer in runs of their own.
- A `helpers` tool has an agent work for the one that calls.
- A `skills` tool runs a script of a skill in the sandbox.
- An `mcp` tool is asked of an MCP server.
- A `client` tool is run by the caller: the run stops at the call and goes on with what the caller brings back.
"""

ToolTrait = Literal["shows_block", "recalls", "saves", "repeats", "multi_agent"]
"""What a tool of the engine is like.

- `shows_block`: its result is the new value of the block that its argument `label` names.
- `recalls`: its arguments say what to look for in what is remembered.
- `saves`: an agent keeps by it what will leave its view.
- `repeats`: its result only repeats what is stored elsewhere, or says that it worked.
- `multi_agent`: Letta gives it to an agent that is one of several.
"""

_AROUND_NAMES = re.compile(r"^(?:functions?|default_api)[./](?=.)|(?<=.):\d+$")

HIDDEN_VALUE = ""
"""Stands for the value of a variable that is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The definition of a tool for the model and the engine.

    Args:
        parameters: a JSON schema of type object.
        idempotent: running it twice does no harm, so an interrupted call is run again.
        parallel: calls of one answer may run at the same time.
        return_limit_chars: a longer result is cut for the model, with a handle to the rest.
        tool_type: the wire's name of its kind.
        timeout_s: the time limit of a call; None: 30 seconds, or the limit of what runs it.
        requires_approval: a person has to approve each call, unless an agent's own rules say otherwise.
        writes_memory: of a `memory` tool, whether it keeps a text beyond the conversation. One that does not say does,
            so that no policy for writes forgets it.
        traits: of a tool of the engine. These two stand in its code, not in the store.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    kind: ToolKind = "function"
    tool_type: str = "custom"
    idempotent: bool = False
    parallel: bool = False
    return_limit_chars: int = 50_000
    timeout_s: float | None = None
    requires_approval: bool = False
    writes_memory: bool = field(default=True, compare=False)
    traits: frozenset[ToolTrait] = field(default=frozenset(), compare=False)


def bare_name(name: str) -> str:
    """Return the name of a tool from the form in which a model wrote it: `functions.search:0` is `search`."""
    return _AROUND_NAMES.sub("", name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("tags")
class Tool:
    """A tool as an object of an organisation, which agents have attached.

    `own_name`: what its MCP server calls it, if no other tool has that name. It is looked up, not stored.
    """

    __repr__ = short_repr("id", "name")

    id: ToolId
    spec: ToolSpec
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    own_name: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The name by which models call it, `spec.name`."""
        return self.spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCode:
    """The code of a custom tool, stored apart from `Tool`, which is read at every model call.

    Args:
        source: the Python source; `function` is the one of its top-level functions that is called.
        requirements: pip requirements, such as "httpx==0.28.1".
        environment: variable -> value; `secret:NAME` stands for the secret of that name. Other values are stored in
            `sealed` only.
        sealed: variable -> its encrypted value in base64; see `visible_environment`.
        network: the hosts that it needs, as `core.tools.hosts` has them; an admin has to allow tools a network too.
        memory_mb: None: the setting of the sandbox.
        takes_agent: a parameter `agent_state` of its function gets the agent's blocks, and may change them.
        left_empty: parameters of its function that get None.
    """

    source: str
    function: str
    source_type: str = "python"
    requirements: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    sealed: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: tuple[str, ...] = ()
    memory_mb: int | None = None
    takes_agent: bool = False
    left_empty: tuple[str, ...] = ()

    @property
    def visible_environment(self) -> dict[str, str]:
        """The variables for display: only references have a value.

        Any other value may be a key, so it is encrypted like a secret and shown as `HIDDEN_VALUE`. Sent back so, it
        stays.
        """
        references = {name: value for name, value in self.environment.items() if value.startswith(REFERENCE)}
        hidden, sealed = (dict.fromkeys(names, HIDDEN_VALUE) for names in (self.environment, self.sealed))
        return dict(sorted({**hidden, **references, **sealed}.items()))

    @property
    def is_sealed(self) -> bool:
        """Whether all values are encrypted or references."""
        return all(value.startswith(REFERENCE) for value in self.environment.values())


@dataclass(frozen=True, slots=True)
class ToolInputs:
    """What a custom tool is run with beside its arguments: environment, agent and blocks, all read at once.

    Args:
        code: None: the tool has no source.
        environment: variable -> value.
        secrets: variable whose value is masked in the result -> the name to show for it.
        agent: None: the tool runs for no agent.
        blocks: the agent's blocks if the tool takes the agent, else empty.
    """

    code: ToolCode | None
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    agent: Agent | None
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A tool's new value for a block that it read at `version`; it is stored with the tool's result, as an edit."""

    label: str
    value: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """The outcome of a call: the text for the model, the tool's output, and its effects on the store.

    `refused`: as in `messages.ToolResult`.

    Args:
        blocks: the block changes of a foreign tool, to store with the result.
        edits: the block edits that a memory tool has stored.
        versions: other memory that the text shows, by the keys of `Conversation.seen` -> its version; None: it is no
            longer in view.
        passages: the passages in the text.
        question: a question for the user; the run ends with it, once all calls of the answer have their results.
        shown_chars, shown_text, whole_tokens: as in `messages.ToolResult`.
        images: the pictures after the text.
        sources: what the text brings from outside; None: as the tool says.
    """

    text: str
    status: ToolStatus = "success"
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    refused: bool = False
    blocks: tuple[BlockChange, ...] = ()
    edits: tuple[MemoryEdit, ...] = ()
    versions: Mapping[str, int | None] = field(default_factory=dict)
    passages: tuple[Passage, ...] = ()
    question: Question | None = None
    shown_chars: int | None = None
    images: tuple[Image, ...] = ()
    shown_text: str | None = None
    whole_tokens: int | None = None
    sources: tuple[Source, ...] | None = None

    @classmethod
    def failure(cls, name: str, text: str, *, stdout: tuple[str, ...] = (), stderr: tuple[str, ...] = ()) -> Self:
        """Return the outcome of the tool `name` that failed with `text`, in words that clients of Letta look for."""
        text = f"Error executing function {name}: {text}"
        return cls(text=text, status="error", stdout=stdout, stderr=(text, *stderr))

    def result(self, call: ToolCall) -> ToolResult:
        """Return the result of this call for the log."""
        return ToolResult(
            call.call_id,
            call.name,
            self.text,
            self.status,
            self.stdout,
            self.stderr,
            self.refused,
            self.question,
            self.shown_chars,
            self.images,
            self.shown_text,
            None if self.shown_text is None else self.whole_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("tags")
class ToolFilter:
    """Selects tools, for which all conditions must hold; None asks for nothing, an empty tuple selects no tool.

    `names` and `ids` are whole ones, `text` a part of the name in any case. `types` are the wire's names of kinds,
    `not_types` those that are left out; `letta`: whether the type begins with `letta_`. `tags`: one is enough.
    """

    names: tuple[str, ...] | None = None
    ids: tuple[ToolId, ...] | None = None
    types: tuple[str, ...] | None = None
    not_types: tuple[str, ...] = ()
    letta: bool | None = None
    text: str | None = None
    tags: tuple[str, ...] | None = None
    agent_id: AgentId | None = None
