"""The toolbox of the built-in tools. Each tool's modules are imported at its first call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.core.errors import InvalidArguments, NotFound
from perdure.core.messages import Question
from perdure.core.ports import CallContext, Converter, TokenCounter
from perdure.core.specs import Tool, ToolOutcome
from perdure.core.tools.sandbox import Sandbox
from perdure.toolbox.builtin.index_output import run_code

if TYPE_CHECKING:
    from perdure.toolbox.builtin.fetch_webpage import WebPages
    from perdure.toolbox.builtin.index_output import LoadFile
    from perdure.toolbox.builtin.web_search import WebSearch

NO_TOOLS_IN_CODE = (
    "code that calls tools is not run here: call the tools one by one, or run code without them by run_code"
)

OPTIONS_MAX = 20
OPTION_CHARS = 300
QUESTION_CHARS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The settings of web tools.

    Args:
        search: the engine of `web_search`; empty: the first that `environment` has a key for; `none`: no engine.
        searxng_url: the address of an instance of SearXNG.
        allowed_hosts: hosts that may be fetched at any address, as `name` or `name:port`.
        environment: variables with the keys of engines.
    """

    search: str = ""
    searxng_url: str = ""
    allowed_hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class Builtins:
    """`Toolbox` of the built-in tools. `converter` converts pages to text, `sandbox` runs code (None: `run_code` is
    refused), `load_file` reads an agent's files for `index_output`, and `counter` counts the tokens of outputs."""

    def __init__(
        self,
        *,
        converter: Converter,
        web: WebSettings,
        sandbox: Sandbox | None = None,
        load_file: LoadFile,
        counter: TokenCounter,
    ) -> None:
        self._converter, self._web, self._sandbox = converter, web, sandbox
        self._load_file, self._counter = load_file, counter

    def missing(self, tool: Tool) -> str | None:
        """Why this tool can't be run here; None: it can."""
        match tool.spec.name:
            case "ask_user" | "fetch_webpage" | "index_output":
                return None
            case "run_code":
                return None if self._sandbox is not None else "there is no sandbox here, so no code is run"
            case "run_code_with_tools":
                return NO_TOOLS_IN_CODE
            case "web_search":
                return self._search.missing()
            case name:
                return f"this Perdure has no built-in tool {name!r}, so it was not run"

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """Run the tool, and return its outcome. Raises: NotFound: there is none; ToolError, SandboxUnavailable."""
        match tool.spec.name:
            case "ask_user":
                return ask_user(arguments)
            case "run_code" if self._sandbox is not None:
                return await run_code(self._sandbox, arguments, owner=context.agent_id)
            case "fetch_webpage":
                return await self._pages.fetch(arguments)
            case "index_output":
                from perdure.toolbox.builtin.index_output import OutputIndex

                outputs = OutputIndex(self._sandbox, lambda: self._pages, self._load_file, self._counter)
                return await outputs.index(arguments, owner=context.agent_id)
            case "web_search":
                return await self._search.search(arguments)
            case name:
                raise NotFound("built-in tool", name)

    @cached_property
    def _pages(self) -> WebPages:
        from perdure.toolbox.builtin.fetch_webpage import WebPages
        from perdure.toolbox.web_guard import WebGuard

        return WebPages(WebGuard(self._web.allowed_hosts), self._converter)

    @cached_property
    def _search(self) -> WebSearch:
        from perdure.toolbox.builtin.web_search import WebSearch, choose_engine

        web = self._web
        return WebSearch(choose_engine(web.environment, name=web.search, searxng_url=web.searxng_url))


def ask_user(arguments: Mapping[str, Any]) -> ToolOutcome:
    """An outcome with `arguments["question"]` and its `options`, which the user is shown. Raises: InvalidArguments: it
    is empty or too long, or they are too many or too long."""
    text = str(arguments["question"]).strip()
    options = tuple(" ".join(str(option).split()) for option in arguments.get("options") or ())
    if not text or len(text) > QUESTION_CHARS:
        raise InvalidArguments("ask_user", f"'question' needs 1 to {QUESTION_CHARS:,} characters, not {len(text):,}")
    if len(options) > OPTIONS_MAX or not all(0 < len(option) <= OPTION_CHARS for option in options):
        raise InvalidArguments("ask_user", f"'options' are up to {OPTIONS_MAX} texts of 1 to {OPTION_CHARS} characters")
    return ToolOutcome(text="Asked. The user's next message is the answer.", question=Question(text, options))
