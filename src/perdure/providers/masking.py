"""Mask secrets in what is shown, logged or stored: headers, addresses, request fields, and texts of errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

MASK = "***"

SECRET_CHARS_MIN = 4
"""A shorter secret would mask half of every text, and protects nothing."""

_SECRET_NAME = re.compile(
    r"auth|cookie|credential|passw|secret|signature|(?:api|access|private)[-_]?key|^key$|(?<![a-z])token$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_PASSWORD = re.compile(r"(?s)\w+://[^/]*?:(.*)@")
_SCHEME_START = re.compile(r"(?i)^(?:bearer|basic|token)\s+")
_SCHEME = re.compile(r"(?i)(bearer|basic|token)\s+\S")
_IN_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"\b(?:sk|pk|gsk|xai|hf|AIza)[-_][\w*-]{6,}"), MASK),
    (
        re.compile(
            r"(?i)([?&](?:api[-_]?key|key|token|access[-_]token|sig|signature|secret|(?:ssl)?password)=)[^&\s\"'<>]+"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(://)[^/\s@\"'<>]+@"), rf"\1{MASK}@"),
)


def mask_headers(headers: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """The headers, names in lower case, secret ones replaced; of an authorization its scheme stays."""
    secrets = tuple(secrets)
    return {name.lower(): _mask_header(name, value, secrets) for name, value in headers.items()}


def request_secrets(headers: Mapping[str, str], url: str) -> tuple[str, ...]:
    """The secrets of a request: headers and query fields with secret names, the address's password."""
    parts = urlsplit(url)
    named = (*headers.items(), *parse_qsl(parts.query))
    values = [value for name, value in named if _SECRET_NAME.search(name)]
    values += [_SCHEME_START.sub("", value) for value in values]
    return tuple(dict.fromkeys(filter(None, (*values, parts.password, unquote(parts.password or "")))))


def environment_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of environment variables with secret names, and the passwords in addresses."""
    named = [value for name, value in environment.items() if _SECRET_VARIABLE.search(name)]
    passwords = [match[1] for value in environment.values() if (match := _PASSWORD.match(value))]
    return tuple(value for value in (*named, *passwords, *map(unquote, passwords)) if len(value) >= 8)


def mask_text(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets and what looks like one: bearer tokens, `sk-...`, passwords and keys in addresses.
    Providers repeat keys in their errors."""
    # Errors quote a header by its `repr`, in which a line break of a key is escaped.
    forms = {form for secret in secrets if len(secret) >= SECRET_CHARS_MIN for form in (secret, repr(secret)[1:-1])}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def mask_fields(fields: Mapping[str, Any], secrets: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a request body, at any depth, with the values of secret names and the secrets replaced."""
    secrets = tuple(secrets)
    return {
        name: MASK if isinstance(value, str) and _SECRET_NAME.search(name) else _masked(value, secrets)
        for name, value in fields.items()
    }


def _masked(value: Any, secrets: tuple[str, ...]) -> Any:
    """A value of a request body without secrets."""
    match value:
        case str():
            return mask_text(value, secrets)
        case Mapping():
            return mask_fields({str(name): inner for name, inner in value.items()}, secrets)
        case list() | tuple():
            return [_masked(inner, secrets) for inner in value]
        case _:
            return value


def _mask_header(name: str, value: str, secrets: tuple[str, ...]) -> str:
    """The value of a header without secrets."""
    if not _SECRET_NAME.search(name):
        return mask_text(value, secrets)
    return f"{value.split()[0]} {MASK}" if _SCHEME.match(value) else MASK
