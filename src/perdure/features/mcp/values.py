"""MCP servers and the tools they offer: what is registered, what was approved, what the server says now."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from perdure.core.errors import DataTooLarge, InvalidInput
from perdure.core.ids import McpServerId, OrgId, ToolId
from perdure.core.incoming.addresses import find_address, is_allowed
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.core.secrets import HIDDEN_QUERY, Cipher, hide_secret
from perdure.core.text.json_strings import compact_json, sorted_json
from perdure.core.tools.schema import check_schema, plain_schema

Transport = Literal["stdio", "streamable_http", "sse"]
McpToolStatus = Literal["active", "pending", "changed", "missing", "removed", "unusable"]
"""`active`: it is what was approved. `pending`: it is new, and agents don't see it. `changed`: the server describes it
otherwise than was approved; agents see what was approved, and calls wait. `missing`: the server has it no more.
`removed`: the tool was deleted here; approving brings it back. `unusable`: the server describes its arguments by
something that is no schema."""

TOOL_NAME_CHARS_MAX = 64
"""What providers take as the name of a tool, in ASCII letters, digits, `_` and `-`."""

DEFINITION_BYTES_MAX = 65_536
SERVER_TOOLS_MAX = 500
INVALID_ENTRIES_MAX = 100
"""So many of the tools that a listing was left without are told of."""

NAME_CHARS_MAX = 200
URL_CHARS_MAX = 2_000
ARGUMENTS_MAX = 200
DEPTH_MAX = 32
_SCHEMA_LIMITS = JsonLimits(size_bytes=1 << 62, depth=DEPTH_MAX, containers=1 << 62)

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_ .\-]{0,63}")
SERVER_NAME_PATTERN = f"^{_SERVER_NAME.pattern}$"
"""The same as JSON Schema writes it."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9\-]|_(?!_))*(?<!_)", re.ASCII)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~\-]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OUR_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding"})
PROTOCOL_HEADERS = frozenset({"accept", "content-type"})
"""Headers that a client may give, and that are sent as the protocol needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidEntry:
    """An entry of a server's listing that can't be a tool. An entry without a name is named by its place: `#3`."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server as it was registered.

    Args:
        command, args: of a `stdio` server: the program that is run on this machine.
        url: of the others, with `HIDDEN_QUERY` in place of its query, which often holds a key; of one that was stored
            before that was so, as it is.
        auth_header: the header that carries the token; None: there is no token.
        header_names, variable_names: what is sent besides, and what a `stdio` server finds in its environment. Their
            values, and the token, are in `sealed` only.
        trusted: its new tools need no approval, and its hints about them are believed. A changed definition waits all
            the same.
        private: whether its `url` may lead to this machine or into a private network. None: it was registered before
            that was asked, and the first listing settles it by where it comes from.
        plugin: the plug-in that registered it, without which it is not used; empty: none did.
        sealed: the secret part of its configuration, encrypted.
        listed_at: when its tools were last read; None: not yet.
        failure: why the last try to reach it failed; empty: it did not.
        left_out: what its last listing had beside the tools that are known, and why it is none of them.
    """

    id: McpServerId
    org_id: OrgId
    number: int = 0
    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    auth_header: str | None = None
    header_names: tuple[str, ...] = ()
    variable_names: tuple[str, ...] = ()
    trusted: bool = False
    private: bool | None = False
    plugin: str = ""
    sealed: bytes = field(default=b"", repr=False)
    created_at: datetime
    updated_at: datetime
    listed_at: datetime | None = None
    failure: str = ""
    left_out: tuple[InvalidEntry, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """How it is reached, as it is stored."""
        names = ("command", "args", "url", "auth_header", "header_names", "variable_names", "private")
        return {name: getattr(self, name) for name in (*names, *(["plugin"] if self.plugin else []))}

    @property
    def shown_url(self) -> str:
        """The address without its query."""
        return hide_secret(self.url)[0]

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.shown_url or " ".join((self.command, *self.args))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecrets:
    """The secret part of a server's configuration. A value `secret:NAME` stands for the organisation's secret."""

    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as its server describes it. `name` is the server's name for it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of all that it says: what is approved is this."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return hashlib.sha256(sorted_json(fields).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolListing:
    """What a server says of its tools: the usable definitions, and the entries that can't be tools.

    `inside`: whether it comes from this machine or a private network; None: from a program.
    """

    definitions: Sequence[ToolDefinition] = ()
    left_out: tuple[InvalidEntry, ...] = ()
    inside: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool of a server.

    Args:
        name: what the server calls it.
        tool_id: the tool that agents are given; None until it is approved for the first time.
        local_name: what agents call it.
        pinned: what was approved; None: nothing yet.
        seen: what the server said last; None: it has it no more.
        removed: the tool that agents were given was deleted. It is looked up, not stored.
    """

    server_id: McpServerId
    name: str
    local_name: str
    tool_id: ToolId | None = None
    pinned: ToolDefinition | None = None
    seen: ToolDefinition | None = None
    removed: bool = False

    @property
    def problem(self) -> str:
        """Why the tool can't be used as the server describes it; empty: it can."""
        try:
            check_schema({} if self.seen is None else self.seen.parameters)
        except InvalidInput as error:
            return str(error)
        return ""

    @property
    def status(self) -> McpToolStatus:
        """The state of the tool by what was approved and what the server says now."""
        if self.seen is None:
            return "missing"
        if self.problem:
            return "unusable"
        if self.pinned is None:
            return "pending"
        if self.removed:
            return "removed"
        return "active" if self.pinned.digest == self.seen.digest else "changed"


def local_name(server: str, tool: str, *, salt: int = 0) -> str:
    """Return the name by which agents call a server's tool: `server__tool` if that is legal and unambiguous, else with
    a digest of both at its end. Equal input gives equal names."""
    plain = f"{server}__{tool}"
    readable_as_one = _PLAIN_NAME.fullmatch(server) and re.fullmatch(r"[A-Za-z0-9_-]+", tool)
    if readable_as_one and not salt and len(plain) <= TOOL_NAME_CHARS_MAX:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}\0{salt}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    return f"{readable[: TOOL_NAME_CHARS_MAX - 9]}_{digest}"


def server_tag(name: str) -> str:
    """The tag of a server's tools."""
    return f"mcp:{name}"


def seal_server(server: McpServer, secrets: ServerSecrets, *, cipher: Cipher) -> McpServer:
    """Return the server with its secrets, encrypted, and the names of its headers and variables. Without secrets
    nothing is encrypted, so that no key is needed. Raises: SecretKeyMissing."""
    url, query = hide_secret(server.url)
    server, query = replace(server, url=url), query or (secrets.query if url.endswith(HIDDEN_QUERY) else "")
    values = {"token": secrets.token, "headers": dict(secrets.headers), "environment": dict(secrets.environment)}
    if query:
        values["query"] = query
    has_values = any(values.values())
    return replace(
        server,
        auth_header=(server.auth_header or "Authorization") if secrets.token else None,
        header_names=tuple(secrets.headers),
        variable_names=tuple(secrets.environment),
        sealed=cipher.encrypt(compact_json(values).encode(), bound_to=_binding(server)) if has_values else b"",
    )


def unseal_server(server: McpServer, *, cipher: Cipher) -> ServerSecrets:
    """Return a server's decrypted secrets; `secret:NAME` stays. Raises: SecretKeyMissing, SecretUnreadable."""
    if not server.sealed:
        return ServerSecrets()
    return ServerSecrets(**json.loads(cipher.decrypt(server.sealed, bound_to=_binding(server))))


def reseal_server(server: McpServer, *, cipher: Cipher) -> McpServer:
    """The server with the same secrets, encrypted again. Raises: SecretKeyMissing, SecretUnreadable."""
    plain = cipher.decrypt(server.sealed, bound_to=_binding(server))
    return replace(server, sealed=cipher.encrypt(plain, bound_to=_binding(server)))


def _binding(server: McpServer) -> str:
    """Return the context that the secrets of a server are encrypted for: they can't be decrypted as another's."""
    return f"mcp_server/{server.org_id}/{server.id}"


def check_server(server: McpServer, secrets: ServerSecrets) -> None:
    """Raises: InvalidInput: a server can't be reached by this configuration; the message has no secret in it."""
    if not isinstance(server.name, str) or not _SERVER_NAME.fullmatch(server.name):
        raise InvalidInput(
            f"MCP server name {server.name!r:.80} can't be used: 1 to 64 ASCII letters, digits, spaces, _ . and -,"
            " beginning with a letter or digit"
        )
    if server.transport not in get_args(Transport):
        names = ", ".join(get_args(Transport))
        raise InvalidInput(f"MCP transport {server.transport!r:.80} is not known: use {names}")
    if server.transport == "stdio":
        _check_command(server, secrets.environment)
        if server.url or secrets.token or secrets.headers:
            raise InvalidInput("a stdio server has a command, not a url, a token or headers")
        return
    if server.command or server.args or secrets.environment:
        raise InvalidInput(f"a server of the transport {server.transport} has a url, not a command or an environment")
    _check_url(server.url)
    if server.url.endswith(HIDDEN_QUERY) and not secrets.query:
        raise InvalidInput(f"the url ends with {HIDDEN_QUERY}, as it is shown: write its query out, to be encrypted")
    token = () if secrets.token is None else ((server.auth_header or "Authorization", secrets.token),)
    for name, value in (*secrets.headers.items(), *token):
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name) or name.lower() in _OUR_HEADERS:
            raise InvalidInput(f"header name {name!r:.80} can't be used for an MCP server")
        if not isinstance(value, str) or not value.isprintable() or not value.isascii():
            raise InvalidInput(f"the value of header {name} can't be sent: printable ASCII characters only")


def _check_command(server: McpServer, environment: Mapping[str, str]) -> None:
    """Check the program of a stdio server. Raises: InvalidInput."""
    command = server.command
    if not isinstance(command, str) or not command.strip() or "\x00" in command:
        raise InvalidInput("a stdio server needs a command to run")
    if len(server.args) > ARGUMENTS_MAX or any(not isinstance(arg, str) or "\x00" in arg for arg in server.args):
        raise InvalidInput(f"the arguments of an MCP server are texts without NUL, at most {ARGUMENTS_MAX}")
    for name, value in environment.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise InvalidInput(f"variable name {name!r:.80} can't be used: ASCII letters, digits and _")
        if not isinstance(value, str) or "\x00" in value:
            raise InvalidInput(f"the value of variable {name} is not text that an environment can hold")


def _check_url(url: str) -> None:
    """Check the address of a server that is no program. Raises: InvalidInput."""
    if not isinstance(url, str) or len(url) > URL_CHARS_MAX or not url.isprintable() or any(map(str.isspace, url)):
        raise InvalidInput("the url of an MCP server is a text without white space, of at most 2,000 characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"the url of an MCP server can't be read: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InvalidInput(f"the url of an MCP server begins with http:// or https:// and a host, not {url!r:.80}")
    if find_address(parts.hostname) and not is_allowed(parts.hostname):  # of a name each request is looked at
        raise InvalidInput(f"the url of an MCP server leads to {parts.hostname}, where no MCP server is looked for")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("the url of an MCP server holds no user or password: give a token or a header, encrypted")


def parse_definition(listing: Mapping[str, Any]) -> ToolDefinition:
    """Parse the entry of a tool in a server's listing, as the protocol writes it, to its definition.

    Its schema may still be none by which arguments can be checked: then the tool is `unusable`.
    Raises: InvalidInput, without the tool's name: no name, no schema of an object, too large, too deep.
    """
    name, schema = listing.get("name"), listing.get("inputSchema")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidInput(f"its name {name!r:.80} can't be used: a text of printable characters")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidInput(f"its name has {len(name):,} characters, limit {NAME_CHARS_MAX}")
    if not isinstance(schema, Mapping):
        raise InvalidInput("its input schema is not an object's")
    try:
        check_json(sorted_json(schema).encode("utf-8", "surrogatepass"), _SCHEMA_LIMITS)
    except (DataTooLarge, RecursionError):
        raise InvalidInput(f"its input schema nests deeper than {DEPTH_MAX}") from None
    schema = plain_schema(schema)
    if schema.get("type", "object") != "object":
        raise InvalidInput("its input schema is not an object's")
    annotations = listing.get("annotations")
    definition = ToolDefinition(
        name=name,
        description=str(listing.get("description") or listing.get("title") or ""),
        parameters={**schema, "type": "object", "properties": schema.get("properties", {})},
        annotations=annotations if isinstance(annotations, Mapping) else {},
    )
    size = len(sorted_json(definition.parameters)) + len(definition.description)
    if size > DEFINITION_BYTES_MAX:
        raise InvalidInput(f"its definition has {size:,} characters, limit {DEFINITION_BYTES_MAX:,}")
    return definition
