"""Every setting: its name, its default, its unit, and the environment variable that changes it."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.incoming.addresses import check_store_address, is_postgres
from perdure.core.incoming.limits import Limits
from perdure.core.text.zones import is_zone

STORE_FILE = "perdure.db"
CHOICES: Mapping[str, tuple[str, ...]] = {
    "token_counter": ("script", "tiktoken"),
    "tool_output": ("off", "lossless", "full"),
    "web_search": ("", "exa", "tavily", "brave", "searxng", "none"),
    "sandbox": ("auto", "unsafe", "off"),
    "sandbox_network": ("off", "on"),
    "mcp_stdio": ("off", "on"),
    "mcp_private": ("", "off", "on"),
    "facts": ("patterns", "model", "off"),
    "schedules": ("on", "off"),
    "background": ("", "idle", "always", "never"),
    "trace_content": ("off", "on"),
}
"""Setting -> the values that it can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Limits):
    """All settings. A field, and each of `Limits`, is read from the variable `PERDURE_` plus its name in capitals.

    Args:
        home: the data folder; empty: the platform's data folder of this user.
        store: the address of the store, a file or `postgresql://...`; empty: the file of `home`.
        postgres_connections: the most connections of this process to PostgreSQL, besides one that hears of others.
        model: the model handle of agents that are created without one; empty: chosen from what the environment offers.
        timezone: the time zone of agents that are created without one, and of facts that no agent has.
        message_limit_chars: the length limit of a message, in characters.
        max_steps: the model calls of a run after which it ends with `max_steps`.
        max_tokens: the tokens, in and out, after which a run makes no other model call; 0: no limit.
        max_cost_usd: the US dollars, of models with a known price, after which it makes none; 0: no limit.
        context_window_tokens: the window of models whose own is unknown, in tokens.
        tool_output: how results of tools are compressed for agents that have no such setting: `off`, `lossless` or
            `full`.
        lease_s: the seconds after which another machine may take over the run of a silent process.
        token_counter: how tokens are counted before a provider does: `script` estimates, `tiktoken` takes OpenAI's
            ranks from disk.
        embedding: the embedder: `none`, `local`, the folder of a local model, or provider/model; empty: the local
            model if it is installed, else none.
        facts: who extracts facts from what was said: `patterns`, without a model; `model`, by one call for each batch;
            `off`: nobody.
        facts_model: the model handle of that model; empty: the agent's own.
        background: when models are called for what nobody waits for, such as facts, summaries and companions: `idle`:
            in silence; `always`; `never`; empty: `idle` for models on servers of your own, `always` for others.
        file_limit_bytes: the size limit of a file in a folder, in bytes.
        files: where the bytes of uploaded files are kept, as `s3://bucket/prefix`; the usual `AWS_...` variables say
            how to reach it; empty: in the store, until their text is made.
        secret_key: the key that encrypts secrets, at least 16 characters; empty: the file `secret.key` beside the
            store, which the first secret creates. PostgreSQL needs the setting.
        secret_key_old: the key before `secret_key`, which only decrypts, until `perdure secret rotate` has run.
        web_search: the engine of `web_search`: exa, tavily, brave or searxng; `none`: no web search; empty: the first
            of them whose key or address the environment has.
        searxng_url: the address of a SearXNG instance.
        web_allowed_hosts: private hosts that agents may fetch pages of, as `name` or `name:port`, separated by commas.
        sandbox: whether custom tools run: `auto`: if this machine can isolate them; `unsafe`: even if it can't; `off`:
            never.
        sandbox_network: `on`: tools may reach the hosts that they list; those that are not public only if
            `web_allowed_hosts` names them too.
        sandbox_memory_mb: the most memory that a call of a tool gets, in MiB.
        sandbox_processes: the most processes and threads that a call of a tool gets.
        sandbox_concurrency: how many tools run at once, at most half of them of one agent; others wait.
        sandbox_timeout_s: the upper limit of the time limits that custom tools set, in seconds.
        sandbox_packages_mb: the disk space of the installed requirements of all tools, in MiB; one set may take a
            quarter.
        mcp_stdio: `on`: clients of the API may register MCP servers that are programs of this machine.
        mcp_private: whether clients of the API may register MCP servers on this machine or in a private network: `on`
            or `off`; empty: if there is no API key and no allowed host, so that only this machine reaches the server.
        mcp_timeout_s: the time limit of a call of an MCP server's tool, in seconds.
        agent_reply_s: how long an agent waits for the reply of another one that it writes to, in seconds.
        agent_sends_at_once: how many agents one call of a tool that writes to agents waits for at the same time.
        subagent_model: the model of all helpers, whatever a call or their definition says: a handle, a family such as
            `haiku`, or `inherit`; empty: those say it.
        helper_reply_s: how long an agent waits for a helper that it has called, in seconds; then the helper is stopped.
        companion_steps: the model calls of one pass of a companion, unless its group says otherwise.
        companion_tokens: the tokens, in and out, of one pass of a companion, unless its group says otherwise.
        companion_retry_s: how long a companion waits after a pass that failed, in seconds; each time four times as
            long, up to five times.
        local_model: a file of a model of one's own, or the name of one that was fetched; it is the default model.
        local_window_tokens: the window that local models are run with, in tokens, if theirs is not smaller.
        local_idle_s: the seconds without a request after which the process of a local model ends.
        local_memory_mb: the most memory that this process may have, in MiB; 0: what its model is expected to need.
        model_mirror: the address of a server that model files are fetched from, in place of their own.
        schedules: `off`: this process fires no schedules, and leaves them to others.
        schedule_grace_s: the seconds by which a schedule may be late before its due time counts as missed.
        audit_days: how long entries of the audit log are kept, in days; 0: for ever.
        trace_content: `on`: spans of OpenTelemetry hold what was said, and what tools were given and answered.
        hooks: the file of hook commands; empty: `hooks.toml` in the data folder, for the store there; `none`: no hooks
            at all, not even those of packages.
        definitions: folders with definitions of helpers, commands and skills, such as `~/.claude`, besides the data
            folder; separated as in `PATH`.
        project_roots: the folders, separated likewise, below which clients of the API may choose an agent's `project`.
        definitions_flags: folders likewise, whose definitions override those of the data folder and of projects.
        helpers: JSON with definitions of helpers, name -> fields; they override those of files.
        policy: a folder with definitions that override all others, and `policy.toml`, which forbids some.

    Raises: InvalidInput: an unknown token counter, search engine or mode, or an invalid address.
    """

    home: str = ""
    store: str = field(default="", repr=False)
    postgres_connections: int = 4
    model: str = ""
    timezone: str = "UTC"
    message_limit_chars: int = 500_000
    max_steps: int = 50
    max_tokens: int = 0
    max_cost_usd: float = 0.0
    context_window_tokens: int = 128_000
    tool_output: str = "full"
    lease_s: float = 15.0
    token_counter: str = "script"
    embedding: str = ""
    facts: str = "patterns"
    facts_model: str = ""
    background: str = ""
    file_limit_bytes: int = 50_000_000
    files: str = ""
    secret_key: str = field(default="", repr=False)
    secret_key_old: str = field(default="", repr=False)
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
    agent_reply_s: float = 300.0
    agent_sends_at_once: int = 50
    subagent_model: str = ""
    helper_reply_s: float = 3_600.0
    companion_steps: int = 20
    companion_tokens: int = 200_000
    companion_retry_s: float = 30.0
    local_model: str = ""
    local_window_tokens: int = 8_192
    local_idle_s: float = 900.0
    local_memory_mb: int = 0
    model_mirror: str = ""
    schedules: str = "on"
    schedule_grace_s: float = 300.0
    audit_days: int = 365
    trace_content: str = "off"
    hooks: str = ""
    definitions: str = ""
    definitions_flags: str = ""
    project_roots: str = ""
    helpers: str = ""
    policy: str = ""

    def __post_init__(self) -> None:
        check_choices(self, CHOICES)
        check_store_address("PERDURE_STORE", self.store)
        if not is_zone(self.timezone):
            raise InvalidInput(f"PERDURE_TIMEZONE is {self.timezone!r:.80}: give a name such as 'Europe/Rome'")
        if self.searxng_url and not self.searxng_url.startswith(("http://", "https://")):
            raise InvalidInput(f"PERDURE_SEARXNG_URL is {self.searxng_url!r}: it has to begin with http:// or https://")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Load the settings from the environment. Raises: InvalidInput: an invalid value."""
        return cls(**variables_of(_DEFAULTS, environment, may_be_zero=_MAY_BE_ZERO))

    @property
    def store_address(self) -> str | Path:
        """The address of the store, as `open_store` takes it. It may hold a password. Raises: InvalidInput: `store` or
        `home` names the folder of an unknown user."""
        return self.store if is_postgres(self.store) else self.store_path

    @property
    def store_path(self) -> Path:
        """The path of the SQLite file. Raises: InvalidInput: the store is no file, or as `store_address`."""
        if not self.store:
            return self.folder / STORE_FILE
        if is_postgres(self.store):
            raise InvalidInput("this is for a store in a file, and PERDURE_STORE names a PostgreSQL database")
        return _expanded("PERDURE_STORE", self.store)

    @property
    def folder(self) -> Path:
        """The data folder. Raises: InvalidInput: `home` names the folder of an unknown user."""
        return _expanded("PERDURE_HOME", self.home) if self.home else default_home()


def check_choices(settings: object, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Check a dataclass of settings against `choices`: setting -> the values that it can have. Raises: InvalidInput."""
    for name, values in choices.items():
        if (value := getattr(settings, name)) not in values:
            *most, last = filter(None, values)
            raise InvalidInput(f"PERDURE_{name.upper()} is {value!r}: {', '.join(most)} or {last} is needed")


def variables_of(
    defaults: Any, environment: Mapping[str, str] | None = None, *, may_be_zero: Collection[str]
) -> dict[str, Any]:
    """Return field -> value for those fields of `defaults`, a dataclass, that the environment sets.

    Only texts and numbers are read, each in the type of its default.
    Raises: InvalidInput: no number, or one that is not positive (0 is allowed for `may_be_zero`).
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for setting in fields(defaults):
        name, kind = f"PERDURE_{setting.name.upper()}", type(getattr(defaults, setting.name))
        if kind not in (str, int, float) or not (text := environment.get(name, "").strip()):
            continue
        try:
            value = kind(text)
        except ValueError as error:
            raise InvalidInput(f"{name} is {text!r}: a positive number is needed") from error
        if kind is not str and not 0 < value < math.inf and not (value == 0 and setting.name in may_be_zero):
            raise InvalidInput(f"{name} is {text!r}: a positive number is needed")
        values[setting.name] = value
    return values


def _expanded(name: str, path: str) -> Path:
    """Return the path with `~` expanded; `name` is the setting in error texts. Raises: InvalidInput: unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        user = Path(path).parts[0]
        raise InvalidInput(
            f"{name} is {path!r}: {user!r} is not a home folder known here; write the whole path"
        ) from error


_DEFAULTS = Settings()
_MAY_BE_ZERO = {"max_tokens", "max_cost_usd", "local_memory_mb", "audit_days"}


def default_home() -> Path:
    """Return the platform's data folder for this user."""
    import platformdirs

    return Path(platformdirs.user_data_dir("perdure", appauthor=False))
