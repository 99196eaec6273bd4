"""Every setting: its name, its default, its unit, and the environment variable that changes it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.core.limits import Limits

__all__ = ["SANDBOX_MODES", "STORE_FILE", "TOKEN_COUNTERS", "WEB_SEARCH", "Settings", "default_home"]

STORE_FILE = "perdure.db"
TOKEN_COUNTERS = ("script", "tiktoken")
SANDBOX_MODES = ("auto", "unsafe", "off")
SWITCHES = ("off", "on")
WEB_SEARCH = ("exa", "tavily", "brave", "searxng", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Limits):
    """What can be set. Each field is read from `PERDURE_` and its name in capitals; so is each of `Limits`.

    Args:
        home: the data folder; empty is the platform's data folder for this user.
        model: the model handle of agents that are created without one; empty: what the environment offers is chosen.
        message_limit_chars: the longest message that is accepted, in characters.
        max_steps: model calls a run may make before it ends with `max_steps`.
        context_window_tokens: how much a model takes, for models that nobody knows better of.
        lease_s: after how many seconds another machine may take over the run of a process that is not heard of.
        token_counter: how tokens are counted before a provider does: `script` estimates, `tiktoken` takes OpenAI's
            ranks from disk.
        embedding: what makes vectors of texts: `none`, `local`, the folder of a local model, or provider/model; empty:
            the local model if it is installed, else none.
        file_limit_bytes: the largest file that is taken into a folder, in bytes.
        late_interaction_ms: how long a search may take, in milliseconds, to compare its first hits with the query word
            by word; only the local model can. By default it does not.
        secret_key: what secrets are encrypted with, at least 16 characters; empty: a file `secret.key` beside the
            store, which is made with the first secret. PostgreSQL needs the setting.
        web_search: the engine of `web_search`: exa, tavily, brave or searxng; `none`: the web is not searched; empty:
            the first of them whose key or address the environment has.
        searxng_url: where an instance of SearXNG answers.
        web_allowed_hosts: hosts that agents may fetch pages of although they are not public, as `name` or `name:port`,
            with commas between.
        sandbox: whether custom tools are run: `auto`: where this machine can hold them back; `unsafe`: also where it
            can't; `off`: never.
        sandbox_network: `on`: tools may reach the hosts that they list; those that are not public only if
            `web_allowed_hosts` names them too.
        sandbox_memory_mb: the most memory that a call of a tool gets, in MiB.
        sandbox_processes: the most processes and threads that a call of a tool gets.
        sandbox_concurrency: how many tools run at a time, of one agent at most half as many; others wait.
        sandbox_timeout_s: the longest that a call of a custom tool may take, whatever the tool says, in seconds.
        sandbox_packages_mb: the most room that the installed requirements of all tools take on disk, in MiB; one set
            may take a quarter.
        mcp_stdio: `on`: clients of the API may register MCP servers that are programs of this machine.
        mcp_private: whether clients of the API may register MCP servers on this machine or in a private network: `on`
            or `off`; empty: if there is no API key and no allowed host, so that only this machine reaches the server.
        mcp_timeout_s: how long a call of an MCP server's tool may take, in seconds.
        hooks: the file that names commands as hooks; empty: `hooks.toml` in the data folder, for a store that is opened
            there; `none`: no hook is called, those of packages neither.

    Raises: InvalidInput: a token counter, search engine or mode that there is not, an address that is none.
    """

    home: str = ""
    model: str = ""
    message_limit_chars: int = 500_000
    max_steps: int = 50
    context_window_tokens: int = 128_000
    lease_s: float = 15.0
    token_counter: str = "script"
    embedding: str = ""
    file_limit_bytes: int = 50_000_000
    late_interaction_ms: int = 0
    secret_key: str = field(default="", repr=False)
    web_search: str = ""
    searxng_url: str = ""
    web_allowed_hosts: str = ""
    sandbox: str = "auto"
    sandbox_network: str = "off"
    sandbox_memory_mb: int = 512
    sandbox_processes: int = 32
    sandbox_concurrency: int = 8
    sandbox_timeout_s: float = 600.0
    sandbox_packages_mb: int = 4096
    mcp_stdio: str = "off"
    mcp_private: str = ""
    mcp_timeout_s: float = 60.0
    hooks: str = ""

    def __post_init__(self) -> None:
        if self.token_counter not in TOKEN_COUNTERS:
            choices = " or ".join(TOKEN_COUNTERS)
            raise InvalidInput(f"PERDURE_TOKEN_COUNTER is {self.token_counter!r}: {choices} is needed")
        if self.web_search and self.web_search not in WEB_SEARCH:
            choices = ", ".join(WEB_SEARCH)
            raise InvalidInput(f"PERDURE_WEB_SEARCH is {self.web_search!r}: one of {choices} is needed")
        if self.sandbox not in SANDBOX_MODES:
            choices = ", ".join(SANDBOX_MODES)
            raise InvalidInput(f"PERDURE_SANDBOX is {self.sandbox!r}: one of {choices} is needed")
        if self.sandbox_network not in SWITCHES:
            raise InvalidInput(f"PERDURE_SANDBOX_NETWORK is {self.sandbox_network!r}: on or off is needed")
        if self.mcp_stdio not in SWITCHES:
            raise InvalidInput(f"PERDURE_MCP_STDIO is {self.mcp_stdio!r}: on or off is needed")
        if self.mcp_private not in ("", *SWITCHES):
            raise InvalidInput(f"PERDURE_MCP_PRIVATE is {self.mcp_private!r}: on or off is needed")
        if self.searxng_url and not self.searxng_url.startswith(("http://", "https://")):
            raise InvalidInput(f"PERDURE_SEARXNG_URL is {self.searxng_url!r}: it has to begin with http:// or https://")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings of this environment. Raises: InvalidInput: a value that can't be."""
        environment = os.environ if environment is None else environment
        changed: dict[str, object] = {}
        for setting in fields(cls):
            name = f"PERDURE_{setting.name.upper()}"
            if not (text := environment.get(name, "").strip()):
                continue
            kind = type(getattr(_DEFAULTS, setting.name))
            try:
                value = kind(text)
            except ValueError as error:
                raise InvalidInput(f"{name} is {text!r}: a positive number is needed") from error
            if kind is not str and not 0 < value < math.inf:
                raise InvalidInput(f"{name} is {text!r}: a positive number is needed")
            changed[setting.name] = value
        return cls(**changed)  # type: ignore[arg-type]  # each was made by its field's own type

    @property
    def store_path(self) -> Path:
        """The SQLite file. Raises: InvalidInput: `home` names a user's folder, and there is no such user."""
        if not self.home:
            return default_home() / STORE_FILE
        try:
            return Path(self.home).expanduser() / STORE_FILE
        except RuntimeError as error:
            user = Path(self.home).parts[0]
            raise InvalidInput(
                f"PERDURE_HOME is {self.home!r}: {user!r} is no home folder known here; write the whole path"
            ) from error


_DEFAULTS = Settings()


def default_home() -> Path:
    """The platform's data folder for this user."""
    import platformdirs

    return Path(platformdirs.user_data_dir("perdure", appauthor=False))
