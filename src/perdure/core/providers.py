"""Model providers that clients register, with their keys encrypted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from perdure.core.errors import InvalidInput
from perdure.core.ids import OrgId, ProviderId
from perdure.core.text.reprs import HIDDEN_QUERY, hide_query

KEY_CHARS_MAX = 4_000
URL_CHARS_MAX = 2_000

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProvider:
    """A provider whose models have the handle `name/...`.

    Args:
        provider_type: whose API it speaks, in the client's words.
        base_url: its address; empty: that of its type.
        private: whether that address may be on this machine or in a private network.
        sealed: its key, encrypted; empty: it needs none.
        region, api_version: stored and returned, as clients set them.
        synced_at: when it last listed its models.
    """

    id: ProviderId
    org_id: OrgId
    number: int = 0
    name: str
    provider_type: str
    base_url: str = field(default="", repr=False)
    private: bool = False
    sealed: bytes = field(default=b"", repr=False)
    region: str | None = None
    api_version: str | None = None
    synced_at: datetime | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def shown_url(self) -> str:
        """The address without its query."""
        return hide_query(self.base_url)[0]

    @property
    def binding(self) -> str:
        """What its key is bound to, so that it is of no use in another row."""
        return f"provider/{self.org_id}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFilter:
    """Which providers: all conditions hold."""

    name: str | None = None
    provider_type: str | None = None


def check_provider(provider: ModelProvider, api_key: str | None) -> None:
    """Check the name, the address and the key. Raises: InvalidInput, never with the key in it."""
    if not isinstance(provider.name, str) or not _NAME.fullmatch(provider.name):
        raise InvalidInput(
            f"provider name {provider.name!r:.80} can't be used: up to 100 ASCII letters, digits, _ . and -, beginning"
            " with a letter or digit"
        )
    if len(provider.base_url) > URL_CHARS_MAX:
        raise InvalidInput(f"base_url has {len(provider.base_url):,} characters, the limit is {URL_CHARS_MAX:,}")
    if provider.base_url.endswith(HIDDEN_QUERY):
        raise InvalidInput(f"base_url ends with {HIDDEN_QUERY}, as it is shown: write its query out")
    if api_key is not None and len(api_key) > KEY_CHARS_MAX:
        raise InvalidInput(f"api_key has {len(api_key):,} characters, the limit is {KEY_CHARS_MAX:,}")
