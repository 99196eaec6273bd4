"""The configuration of the server: its address, its key and its limits.

If `PERDURE_API_KEY` is `auto`, Perdure makes a key by itself, in a file in the data folder that only its owner can
read. The server requires it; the CLI and the dashboard read it from there.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from secrets import token_urlsafe

from perdure.app import make_key_file
from perdure.core.errors import InvalidInput, file_errors
from perdure.core.incoming.addresses import is_loopback
from perdure.settings import Settings, check_choices, variables_of

CHOICES: Mapping[str, tuple[str, ...]] = {
    "log": ("console", "json", "off"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_requests": ("off", "on"),
    "metrics": ("key", "loopback", "off"),
}
"""Field -> the values that it can have."""

ANY = "*"

NULL_ORIGIN = "null"
"""The origin that a browser sends for a local file or a sandboxed frame, from any author."""

SCHEME_WILDCARD = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*://\*")
"""All pages of a program that gives each page its own origin, such as `vscode-webview://*`."""

PORT_MAX = 65_535
WORKERS_MAX = 256
AUTO = "auto"
KEY_FILE = "api.key"
KEY_CHARS_MIN, KEY_BYTES_MAX = 16, 4_096
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The configuration of the server. The constructor checks it.

    Args:
        host: the address to bind; any but the loopback needs a key.
        port: 0 picks a free one.
        api_key: what clients send as `Authorization: Bearer`, off the loopback at least 16 characters; None: whoever
            reaches the address is let in.
        key_file: the file that holds the key, if Perdure made the key.
        allowed_hosts: names (`agents.example.org`, or with `:port` for that port alone) in `Host` that are answered
            besides the loopback ones and `host` itself, and in `Origin` besides the request's own host; `*` is any, and
            needs a key. One with a scheme is an origin alone: `app://main`, `file://`, `vscode-webview://*` for all
            of a scheme, and `null`, which needs a key.
        max_body_bytes: the largest request body, in bytes.
        max_depth: how deep arrays and objects of a JSON body may nest.
        max_header_bytes: the largest head of a request: its address and headers.
        max_headers: how many headers a request may have.
        header_s: how long a connection may wait for the head of a request, in seconds.
        body_s: how long a body may take, in seconds, and one more for every 1,000 bytes of it.
        write_s: how long a client may take no byte of an answer that waits for it, in seconds.
        connections: how many may be open; fewer where the process may open few files.
        connections_per_address: how many of one address; 0 is any number.
        shutdown_s: how long a stop waits for answers that are under way, in seconds.
        drain_s: how long SIGTERM lets runs that are under way go on, in seconds; 0: not at all.
        workers: how many processes serve the address.
        log: how the log is written to stderr: `console`, `json`, or `off`.
        log_level: from where on: `debug`, `info`, `warning` or `error`.
        log_requests: whether each request is a line of the level `info`; `off`: of the level `debug`.
        metrics: who reads `/metrics`: `key`: who has the key, if there is one; `loopback`: programs of this machine
            need none; `off`: nobody.
    Raises: InvalidInput: no port, no limit, no form or level of a log.
    """

    host: str = "127.0.0.1"
    port: int = 8283
    api_key: str | None = field(default=None, repr=False)
    key_file: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 5 * 1024 * 1024
    max_depth: int = 100
    max_header_bytes: int = 64 * 1024
    max_headers: int = 100
    header_s: float = 20.0
    body_s: float = 30.0
    write_s: float = 60.0
    connections: int = 2_000
    connections_per_address: int = 500
    shutdown_s: int = 10
    drain_s: float = 20.0
    workers: int = 1
    log: str = "console"
    log_level: str = "info"
    log_requests: str = "off"
    metrics: str = "key"

    def __post_init__(self) -> None:
        check_choices(self, CHOICES)
        if not 0 <= self.port <= PORT_MAX:
            raise InvalidInput(f"port is {self.port}: it must be from 1 to {PORT_MAX}, or 0 for a free one")
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and not (
                0 < value < math.inf or (value == 0 and one.name in _MAY_BE_ZERO)
            ):
                raise InvalidInput(f"{one.name} is {value}: it must be a positive number")
        if not 1 <= self.workers <= WORKERS_MAX:
            raise InvalidInput(f"PERDURE_WORKERS is {self.workers}: from 1 to {WORKERS_MAX} are needed")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidInput("the API key can't be sent in a header: use printable ASCII characters only")
        if self.api_key and len(self.api_key) < KEY_CHARS_MIN and not is_loopback(self.host):
            raise InvalidInput(
                f"the API key has {len(self.api_key)} characters, and other machines reach {self.host}, which can guess"
                f" it: set PERDURE_API_KEY to at least {KEY_CHARS_MIN}, or to auto"
            )
        for name in self.allowed_hosts:
            if name != ANY and "*" in name and not SCHEME_WILDCARD.fullmatch(name):
                raise InvalidInput(
                    f"allowed host {name!r} can never match: names are compared whole; write each of them"
                )
        if not self.api_key and (unsafe := {ANY, NULL_ORIGIN}.intersection(self.allowed_hosts)):
            raise InvalidInput(
                f"allowed_hosts has {unsafe.pop()!r} and there is no API key, so any web page that a user of this"
                " machine opens could talk to the agents: name the hosts, or set PERDURE_API_KEY"
            )

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        workers: int | None = None,
        create_key: bool = True,
    ) -> ServerConfig:
        """Load the configuration from the environment. `host`, `port` and `workers` override it.

        Each field has a variable, such as `PERDURE_PORT`; `PERDURE_ALLOWED_HOSTS` has names separated by commas, and
        `PERDURE_API_KEY` can also be called `LETTA_SERVER_PASSWORD`.

        Args:
            create_key: whether `PERDURE_API_KEY=auto` creates a missing key. If not, nothing is written, and the key is
                a random one that nobody knows.
        Raises: InvalidInput.
        """
        variables = os.environ if environment is None else environment
        given = {"host": host, "port": port, "workers": workers}
        values = variables_of(_DEFAULTS, variables, may_be_zero=_MAY_BE_ZERO)
        values |= {name: value for name, value in given.items() if value is not None}
        values |= {name: values[name].lower() for name in CHOICES if name in values}
        names = variables.get("PERDURE_ALLOWED_HOSTS", "").split(",")
        own, letta = (variables.get(name, "").strip() for name in ("PERDURE_API_KEY", "LETTA_SERVER_PASSWORD"))
        values["api_key"] = own or letta or None
        if own.lower() == AUTO:
            file = values["key_file"] = key_path(Settings.from_environment(variables))
            values["api_key"] = load_key(file) or (make_key(file) if create_key else token_urlsafe())
        return cls(**values, allowed_hosts=tuple(name.strip().lower() for name in names if name.strip()))


_MAY_BE_ZERO = frozenset({"port", "connections_per_address", "drain_s", "shutdown_s"})
_DEFAULTS = ServerConfig()


def key_path(settings: Settings) -> Path:
    """The path of the key's file, which may not exist yet. Raises: InvalidInput: the data folder can't be used."""
    return settings.folder / KEY_FILE


def load_key(file: Path) -> str | None:
    """The key in the file; None: the file does not exist.

    Raises: InvalidInput: other users can read it or own it, it is not a plain file, or it holds no key.
    """
    try:
        descriptor = os.open(file, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(file, f"can't be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(file, "is not a plain file")
        if status.st_uid != os.geteuid():
            raise _unusable(file, f"belongs to the user with the number {status.st_uid}, who knows it then")
        if status.st_mode & 0o077:
            raise _unusable(file, f"is open to others (mode {stat.S_IMODE(status.st_mode):o}), who may know it")
        text = os.read(descriptor, KEY_BYTES_MAX + 1).decode("latin-1").strip()
    finally:
        os.close(descriptor)
    if not KEY_CHARS_MIN <= len(text) <= KEY_BYTES_MAX or not (text.isascii() and text.isprintable()):
        raise _unusable(file, "holds no key")
    return text


def make_key(file: Path) -> str:
    """Create the file with a new key, and return its key. Processes that do so at once all get the same key.

    Raises: InvalidInput: the file can't be written, or an existing one can't be used.
    """
    with file_errors("the API key", f"kept in {file}"):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_key_file(file)
    key = load_key(file)
    if key is None:
        raise _unusable(file, "is gone again")
    return key


def _unusable(file: Path, problem: str) -> InvalidInput:
    return InvalidInput(f"the file of the API key, {file}, {problem}: delete it, and the next start makes a new key")
