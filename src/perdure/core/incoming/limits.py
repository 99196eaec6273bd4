"""Limits of counts and sizes, which bound the work of a request and of its transaction.

Other writers wait for a transaction. Each limit is a setting (`perdure.settings`). Its default is more than an honest
client sends, and keeps a transaction under half a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perdure.core.errors import TooMany


def _limit(default: int, counts: str) -> Any:
    """Return a field of `Limits`; `counts` says what it counts, in words for error texts."""
    return field(default=default, metadata={"counts": counts})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most there may be of each.

    What a request counts is checked as it is read, all else where it is stored. `imports_per_request` and what follows
    count over HTTP only; `tags_per_item` is of an agent, block, passage or tool; `metadata_limit_chars` also of one
    item's settings and source, in characters of JSON. `schedule_interval_s` is the least there may be, not the most.
    """

    blocks_per_agent: int = _limit(500, "blocks for an agent")
    tools_per_agent: int = _limit(500, "tools for an agent")
    folders_per_agent: int = _limit(100, "folders for an agent")
    archives_per_agent: int = _limit(100, "archives for an agent")
    identities_per_agent: int = _limit(100, "identities for an agent")
    schedules_per_agent: int = _limit(1_000, "schedules for an agent")
    own_schedules_per_agent: int = _limit(20, "schedules that an agent made for itself")
    schedule_interval_s: int = _limit(60, "seconds between two due times of a schedule")
    tool_rules_per_agent: int = _limit(300, "tool rules for an agent")
    helpers_per_run: int = _limit(200, "runs of helpers that go back to one message")
    secrets_per_owner: int = _limit(200, "secrets for an agent or the organisation")
    tags_per_item: int = _limit(200, "tags")
    name_limit_chars: int = _limit(1_000, "characters in a tag or name")
    description_limit_chars: int = _limit(20_000, "characters in a description")
    block_limit_chars: int = _limit(1_000_000, "characters in a block")
    memory_limit_chars: int = _limit(500_000, "characters in the blocks of an agent")
    client_limit_chars: int = _limit(300_000, "characters of client tools and skills")
    metadata_limit_chars: int = _limit(500_000, "characters of metadata")
    query_limit_chars: int = _limit(10_000, "characters in a query")
    image_limit_bytes: int = _limit(5_000_000, "bytes of an image")
    images_per_request: int = _limit(10, "images in a request")
    messages_per_request: int = _limit(500, "messages in a request")
    imports_per_request: int = _limit(5_000, "messages to import in a request")
    passages_per_request: int = _limit(5_000, "passages in a request")
    items_per_request: int = _limit(1_000, "items of a list in a request")

    def check(self, name: str, count: int, *, field: str = "") -> None:
        """Check `count` against the limit `name`; `field` is its name in a request. Raises: TooMany."""
        limit: int = getattr(self, name)
        if count > limit:
            words = self.__dataclass_fields__[name].metadata["counts"]
            what = f"{words} (`{field}`)" if field else words
            raise TooMany(what, count=count, limit=limit, setting=f"PERDURE_{name.upper()}")


DEFAULT_LIMITS = Limits()
