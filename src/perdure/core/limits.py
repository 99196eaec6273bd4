"""Limits of counts and sizes, which bound the work of a request and of its transaction.

Other writers wait for a transaction. Each limit is a setting (`perdure.settings`). Its default is more than an honest
client sends, and keeps a transaction under half a second.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core.errors import TooMany


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most there may be of each.

    Args:
        blocks_per_agent, tools_per_agent, folders_per_agent, archives_per_agent: attached to one agent.
        tool_rules_per_agent: rules for tools that one agent has.
        secrets_per_owner: secrets of one agent, or of the organisation.
        tags_per_item: tags of one agent, block, passage or tool.
        block_limit_chars: the value of one block, in characters.
        memory_limit_chars: the values of all blocks of one agent together, when a model is asked.
        client_limit_chars: tools and skills of the client that come with a message, in characters of JSON.
        metadata_limit_chars: one item's metadata, settings or source, in characters of JSON.
        messages_per_request: messages that are sent, or that an agent begins with, at once.
        imports_per_request: messages from elsewhere in one request over HTTP.
        passages_per_request: passages in one request over HTTP.
        items_per_request: items of any other list in a request over HTTP, such as identifiers.
    """

    blocks_per_agent: int = 500
    tools_per_agent: int = 500
    folders_per_agent: int = 100
    archives_per_agent: int = 100
    tool_rules_per_agent: int = 300
    secrets_per_owner: int = 200
    tags_per_item: int = 200
    block_limit_chars: int = 1_000_000
    memory_limit_chars: int = 500_000
    client_limit_chars: int = 300_000
    metadata_limit_chars: int = 500_000
    messages_per_request: int = 500
    imports_per_request: int = 5_000
    passages_per_request: int = 5_000
    items_per_request: int = 1_000

    def check(self, name: str, count: int, *, field: str = "") -> None:
        """Check a count against the limit of this name. `field`: its name in a request. Raises: TooMany."""
        limit: int = getattr(self, name)
        if count > limit:
            what = WORDS[name] + (f" (`{field}`)" if field else "")
            raise TooMany(what, count=count, limit=limit, setting=f"PERDURE_{name.upper()}")


WORDS = {
    "blocks_per_agent": "blocks for an agent",
    "tools_per_agent": "tools for an agent",
    "folders_per_agent": "folders for an agent",
    "archives_per_agent": "archives for an agent",
    "tool_rules_per_agent": "tool rules for an agent",
    "secrets_per_owner": "secrets for an agent or the organisation",
    "tags_per_item": "tags",
    "block_limit_chars": "characters in a block",
    "memory_limit_chars": "characters in the blocks of an agent",
    "client_limit_chars": "characters of client tools and skills",
    "metadata_limit_chars": "characters of metadata",
    "messages_per_request": "messages in a request",
    "imports_per_request": "messages to import in a request",
    "passages_per_request": "passages in a request",
    "items_per_request": "items of a list in a request",
}
"""Limit -> what it counts, for error texts."""

DEFAULT_LIMITS = Limits()
