"""Secrets: values for tools that nobody else sees, encrypted in the store.

A secret belongs to the organisation (`ORGANISATION`) or to an agent. The cipher is a port; nothing here holds a key.
`domain.secrets` has the units of work.

A mask puts the name of a secret in place of its value in what a tool returns.
"""

from __future__ import annotations

import base64
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote_plus, unquote_to_bytes

from perdure.core.errors import InvalidInput, SecretKeyMissing
from perdure.core.ids import SandboxId, VariableId

ORGANISATION = ""
"""The owner of secrets that all agents' tools may use, by `secret:NAME`."""

REFERENCE = "secret:"
SECRET_VALUE_CHARS_MAX = 32_768
"""The most characters of a value: it becomes a variable of a process's environment."""

_NOT_IN_ENVIRONMENTS = re.compile("[\x00\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A stored secret. `sealed`: its value, encrypted so that it opens only together with this owner and name."""

    owner_id: str
    name: str
    sealed: bytes = field(repr=False)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """The configuration of an organisation's sandbox, of which there is one. `settings` are only stored and shown."""

    id: SandboxId
    settings: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable that every custom tool of an organisation gets: `sealed` is its encrypted value, for this id only."""

    id: VariableId
    config_id: SandboxId
    name: str
    sealed: bytes = field(repr=False)
    description: str | None = None
    created_at: datetime
    updated_at: datetime


class Cipher(Protocol):
    """Encrypts small values with its own key.

    `bound_to` names the purpose of a value and is not stored. A value can't be decrypted for another purpose, so a row
    that is copied over another is refused.
    """

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        """Encrypt a value for the purpose `bound_to`; equal values give different bytes. Raises: SecretKeyMissing."""

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        """Decrypt a value for `bound_to`. Raises: SecretKeyMissing; SecretUnreadable: other key or purpose, damage."""

    def is_current(self, sealed: bytes) -> bool:
        """Return whether the value has the current key, no older one. Raises: SecretKeyMissing, SecretUnreadable."""


class NoCipher:
    """The `Cipher` of a program without a key: it refuses."""

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        raise SecretKeyMissing

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        raise SecretKeyMissing

    def is_current(self, sealed: bytes) -> bool:
        raise SecretKeyMissing


HIDDEN_QUERY = "?***"
# A part of the path looks like a key with 16 letters and digits in a row, or with 20 in both cases, also with `-` and
# `_` among them if there are digits.
_SECRET_PART = re.compile(
    r"[?#;]|/(?=P*[A-Za-z])(?:(?=P*\d)P*(?:[A-Za-z0-9]{16}|[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-)"
    r"|(?=P*[A-Z])(?=P*[a-z])P*(?:[A-Za-z]{20}|(?=P*\d)P*[\w-]{20}))".replace("P", "[^/?#;]")
)


_SECRET_WORD = re.compile(r"(?i)key|token|secret|passw|auth|credential")
_LONG_CODE = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w+=-]{24,}")


def may_hold_secret(argument: str) -> bool:
    """Return whether an argument of a program looks as if it was a secret, or named one."""
    return bool(_SECRET_WORD.search(argument) or _LONG_CODE.search(argument))


def hide_secret(url: str) -> tuple[str, str]:
    """(`url` with `HIDDEN_QUERY` in place of the part that may hold a key, that part). The part begins at the query, at
    `;` or `#`, or at a path segment that looks like a key; it is empty if there is none or it is hidden already."""
    found = _SECRET_PART.search(url, url.find("//") + 2)
    if found is None or url.endswith(HIDDEN_QUERY):
        return url, ""
    base, secret = url[: found.start()], url[found.start() :]
    is_query = secret[0] == "?" and secret[1:2] not in (*"/;#?", "")
    return base + HIDDEN_QUERY, secret[1:] if is_query else secret


def with_secret(url: str, secret: str) -> str:
    """Return the whole address from the two values of `hide_secret`."""
    # A query is kept without its `?`, the other parts with their sign.
    return url.removesuffix(HIDDEN_QUERY) + ("" if secret[0] in "/;#?" else "?") + secret if secret else url


def check_secret(name: str, value: str) -> None:
    """Check that name and value fit a process's environment. Raises: InvalidInput, never with the value in it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"secret name {name!r:.80} can't be used: up to 128 ASCII letters, digits and _, not beginning with a digit"
        )
    if not isinstance(value, str):
        raise InvalidInput(f"the value of secret {name} is a {type(value).__name__}: give a text")
    if len(value) > SECRET_VALUE_CHARS_MAX:
        size = f"{len(value):,} characters, the limit is {SECRET_VALUE_CHARS_MAX:,}"
        raise InvalidInput(f"the value of secret {name} has {size}: keep it in a file, and its place in the secret")
    if _NOT_IN_ENVIRONMENTS.search(value):
        raise InvalidInput(f"the value of secret {name} has a NUL or half a character, which no environment can hold")


MASKED_CHARS_MIN = 6
"""A shorter value would blank out parts of plain words and numbers, and can be guessed anyway."""

COMMON_WORDS = frozenset(
    {
        *("default", "development", "disabled", "enabled", "localhost", "production", "release", "sandbox"),
        *("staging", "standard", "testing", "verbose", "warning"),
    }
)
"""Settings that are no secrets, and that a tool's answers are full of."""

_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_URL_SAFE = str.maketrans("+/", "-_")

_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U000[0-9a-fA-F]{5}|[\"'\\/bfnrt])"
)
_BREAK = re.compile(r"(?:\r?\n|\\r\\n|\\n)[ \t]*")
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class _SecretForm:
    """One way to write the secret `name`. Of base64 at an offset, `text` is what depends on the secret alone; `before`
    and `after` say whether the letter next to it also holds some bits of the secret."""

    text: str
    name: str
    before: bool = False
    after: bool = False
    is_base64: bool = False


class SecretMask:
    """Masks the values of a call's secrets in texts: as they are, as Python and JSON escape them, percent-
    encoded in whole or in part, in base64 at any offset, also over lines, and in hexadecimal digits. A tool that
    encodes one in another way, or takes it apart, is not held back. The time is linear in the text.

    Args:
        values: the value of a secret -> its name.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {form.text: form for value, name in values.items() for form in _forms(value, name)}
        self._forms = list(forms.values())

    def text(self, text: str) -> str:
        """Return the text with `[secret NAME]` in place of each secret's value."""
        if not self._forms:
            return text
        spans = sorted(
            (span for view in _views(text) for span in self._find(view)), key=lambda span: (span[0], -span[1])
        )
        pieces: list[str] = []
        masked_upto = 0
        for start, end, name in spans:
            if start >= masked_upto:
                pieces += (text[masked_upto:start], f"[secret {name}]")
            # The value of one secret may stand in another's: the longer one counts.
            masked_upto = max(masked_upto, end)
        return "".join((*pieces, text[masked_upto:]))

    def value(self, value: Any) -> Any:
        """Return a JSON value with each text in it masked, names of fields too."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.text(str(name)): self.value(inner) for name, inner in value.items()}
            case list():
                return [self.value(inner) for inner in value]
            case _:
                return value

    def _find(self, view: _DecodedText) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, name) of each secret in the text that `view` decodes."""
        for form in self._forms:
            if view.of_base64 and not form.is_base64:
                continue
            place = view.text.find(form.text)
            while place >= 0:
                start, end = place, place + len(form.text)
                place = view.text.find(form.text, end)
                if form.before and view.text[max(0, start - 1) : start] in _BASE64:
                    start -= 1
                if form.after and view.text[end : end + 1] in _BASE64:
                    end += 1
                yield *view.origin(start, end), form.name


class _DecodedText:
    """A text in which each match of `pattern` (None: nothing) is decoded, with the place of each character in the
    original text. `decode`: a match -> (decoded characters, how many characters of the match they were written with) in
    order."""

    def __init__(
        self, text: str, pattern: re.Pattern[str] | None, decode: Callable[[str], list[tuple[str, int]]]
    ) -> None:
        self.of_base64 = pattern is _BREAK
        self._starts, self._ends = array("i"), array("i")  # in the text, of each character here
        pieces: list[str] = []
        position = 0
        for match in () if pattern is None else pattern.finditer(text):
            pieces.append(text[position : match.start()])
            self._add(position, match.start())
            position = match.start()
            for characters, length in decode(match[0]):
                pieces.append(characters)
                for _ in characters:
                    self._starts.append(position)
                    self._ends.append(position + length)
                position += length
        self._add(position, len(text))
        self.text = "".join((*pieces, text[position:]))

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the (start, end) in the original text of the decoded characters [`start`, `end`), at least one."""
        return self._starts[start], self._ends[end - 1]

    def _add(self, start: int, end: int) -> None:
        """Note the places of the characters [`start`, `end`) of the original text, which are not decoded."""
        self._starts.extend(range(start, end))
        self._ends.extend(range(start + 1, end + 1))


def _views(text: str) -> Iterator[_DecodedText]:
    """Yield the text as it is, and decoded in each way that changes it."""
    yield _DecodedText(text, None, _unescape)
    if "%" in text:
        yield _DecodedText(text, _PERCENT, _unquote)
    if "\\" in text:
        yield _DecodedText(text, _ESCAPE, _unescape)
    if "\n" in text or "\\n" in text:
        yield _DecodedText(text, _BREAK, lambda line_break: [("", len(line_break))])


def _unescape(escape: str) -> list[tuple[str, int]]:
    """Decode a backslash escape: one pair of (its characters, the length of the escape)."""
    kind, digits = escape[1], escape[2:]
    if len(escape) == 12 and kind == "u":
        pair = escape.replace("\\u", "")
        return [(bytes.fromhex(pair).decode("utf-16-be", "replace"), len(escape))]
    if kind in "uUx":
        code = int(digits, 16)
        return [(chr(code) if code < 0x110000 else escape, len(escape))]
    return [(_LETTERS.get(kind, kind), len(escape))]


def _unquote(run: str) -> list[tuple[str, int]]:
    """Decode a run of percent-encoded bytes: (character, the length of its encoded form) in order."""
    text = unquote_to_bytes(run).decode("utf-8", "surrogateescape")
    return [(character, 3 * len(character.encode("utf-8", "surrogateescape"))) for character in text]


def _forms(value: str, name: str) -> Iterator[_SecretForm]:
    """Yield the ways to write the value of the secret `name`; none for a short value or a common word."""
    for plain in dict.fromkeys((value, value.strip())):
        if len(plain) < MASKED_CHARS_MIN or plain.casefold() in COMMON_WORDS:
            continue
        data = plain.encode()
        texts = (plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1])
        # Where a space is a plus, percent-encoding may be of any of the others.
        encoded_whole = (plain.replace(" ", "+"), quote_plus(plain), data.hex(), data.hex().upper())
        for text in (*texts, repr(data)[2:-1], *encoded_whole):
            yield _SecretForm(text, name)
        for offset in range(3):
            encoded = base64.b64encode(bytes(offset) + data).decode().rstrip("=")
            first, rest = -(-offset * 8 // 6), (offset + len(data)) * 8 % 6
            core = encoded[first : len(encoded) - bool(rest)]
            for text in (core, core.translate(_URL_SAFE)):
                yield _SecretForm(text, name, before=bool(offset), after=bool(rest), is_base64=True)
