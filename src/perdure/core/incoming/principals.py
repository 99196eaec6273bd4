"""The principal that a request acts for, and what keys and agents may use."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.ids import DEFAULT_ORG, KeyId, OrgId, UserId

Scope = Literal["read-only", "user", "builder", "admin"]
"""`read-only`: reads and searches; `user`: also talks to agents, and changes memory through them; `builder`: also makes
and changes agents, tools and the like; `admin`: also users, keys, settings of the organisation and its audit log."""

SCOPES: tuple[Scope, ...] = get_args(Scope)
"""From the smallest to the largest; each includes those before it."""

LIMIT_MAX = 2**53


class ScopeTooSmall(PerdureError):
    """The key may use the route, but not for this. Nothing was written."""


def includes(scope: Scope, needed: Scope) -> bool:
    """Return whether a key with `scope` may do what needs the scope `needed`."""
    return SCOPES.index(scope) >= SCOPES.index(needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class UseLimits:
    """What a key or an agent may use; None: any amount. Tokens are those of models, in and out; days are those of UTC.

    Args:
        requests_per_minute: of a key; of an agent the runs that begin.
        message_chars: the longest text of one request to an agent.
        cost_per_day, cost_per_run: in US dollars, of models with a known price.
    """

    requests_per_minute: int | None = None
    message_chars: int | None = None
    tokens_per_day: int | None = None
    cost_per_day: float | None = None
    tokens_per_run: int | None = None
    cost_per_run: float | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            numbers = int | float if one.name.startswith("cost") else int
            if value is None or (isinstance(value, numbers) and not isinstance(value, bool) and 0 < value < LIMIT_MAX):
                continue
            what = "a number" if numbers is not int else "a whole number"
            raise InvalidInput(f"{one.name} is {value!r:.60}: {what} above 0 is needed, or nothing for no limit")

    @property
    def present(self) -> Mapping[str, Any]:
        """The limits that are set, by name."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}

    @property
    def daily(self) -> Mapping[str, Any]:
        """The limits of a day that are set, by name."""
        return {name: value for name, value in self.present.items() if name.endswith("_per_day")}


def limits_of(values: Mapping[str, Any]) -> UseLimits:
    """Return the limits in `values`, name of a limit -> number or None for no limit. Raises: InvalidInput."""
    if not isinstance(values, Mapping):
        raise InvalidInput(f"limits is {values!r:.60}: give names of limits with numbers")
    known = {one.name for one in fields(UseLimits)}
    if unknown := sorted(values.keys() - known):
        raise InvalidInput(f"{unknown[0]!r:.60} is not a limit: those are {', '.join(sorted(known))}")
    return UseLimits(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a request acts for: an organisation, with a scope; the user and the key, if there are any."""

    org_id: OrgId = DEFAULT_ORG
    user_id: UserId | None = None
    key_id: KeyId | None = None
    scope: Scope = "admin"
    limits: UseLimits = field(default_factory=UseLimits)

    def may(self, needed: Scope) -> bool:
        """Whether the principal's scope includes the `needed` one."""
        return includes(self.scope, needed)


LOCAL = Principal()
"""Who sits at this machine, or has the server's own key: the administrator of the default organisation."""

current_principal: ContextVar[Principal] = ContextVar("current_principal", default=LOCAL)
"""Who the current request acts for. Tasks that it starts act for the same."""


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """What was used in a period: requests, tokens, and dollars."""

    requests: int = 0
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: PeriodUsage) -> PeriodUsage:
        return PeriodUsage(self.requests + other.requests, self.tokens + other.tokens, self.cost + other.cost)


def day_of(at: datetime) -> str:
    """Return the day of `at` in UTC, as ISO 8601 text, the form in which counts of use name days."""
    return at.astimezone(UTC).date().isoformat()
