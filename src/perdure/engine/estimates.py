"""The size of requests as it is estimated and measured: of rows, and by how much an estimate is too high."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.context.sections.assemble import View, tools_text
from perdure.context.sections.stubs import apply_stubs, row_tokens
from perdure.context.window.budget import reduce_overcount
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.messages import Message, text_of
from perdure.core.ports import TokenCounter
from perdure.core.runs import Prefix
from perdure.storage.tx import Tx

SEAM_TOKENS = 4
"""How many tokens more or less a text may take at the edges of a part that is cut out."""


def rows_tokens(view: View, stubs: Mapping[int, int], counter: TokenCounter) -> int:
    """Return the upper estimate of the tokens of all rows that a view shows, without prefix and summary."""
    return sum(row_tokens(message, stubs, counter) for message in (*view.pinned, *view.rows))


def rows_at_least(view: View, stubs: Mapping[int, int], counter: TokenCounter) -> int:
    """Return a lower bound, by any tokenizer, of the tokens of the summary and all rows that a view shows."""
    rows = (*view.pinned, *view.rows)
    tokens = (min(row_tokens(row, stubs, counter), counter.at_least(row.text)) for row in rows)
    return counter.at_least(view.prefix.summary) + sum(tokens)


def fixed_at_least(prefix: Prefix, status: str, counter: TokenCounter) -> int:
    """Return a lower bound, by any tokenizer, of the tokens of a request without its messages. `status`: its tail."""
    return sum(counter.at_least(text) for text in (tools_text(prefix.tools), prefix.system, status))


def is_measured(tx: Tx, agent: Agent, conversation: Conversation) -> bool:
    """Whether a provider has counted the tokens of a request like the conversation's next one."""
    steps = tx.steps.list(agent.id, conversation_seq=conversation.seq, limit=3)
    return conversation.overcount != 0 or any(step.model == agent.model and step.usage.input_tokens for step in steps)


def overcount_behind(
    tx: Tx, agent: Agent, conversation: Conversation, current: Prefix | None, prefix: Prefix, counter: TokenCounter
) -> int:
    """Return by how many tokens the estimate of prefix and rows is too high when `prefix` replaces `current`. What a
    provider measured of unchanged parts still holds, unless it was another model."""
    steps = tx.steps.list(agent.id, conversation_seq=conversation.seq, limit=1)
    if current is None or not steps or steps[0].model != agent.model:
        return unmeasured_overcount(tx, agent.model, prefix.tokens + conversation.view_tokens)
    overcount = conversation.overcount
    for old, new in zip(_texts(current), _texts(prefix), strict=True):
        if dropped := _dropped_text(old, new):
            overcount = reduce_overcount(
                overcount,
                estimated=current.tokens + conversation.view_tokens,
                dropped=counter.count(dropped) + SEAM_TOKENS,
                dropped_at_least=max(0, counter.at_least(dropped) - SEAM_TOKENS),
            )
    return overcount


def unmeasured_overcount(tx: Tx, model: str, estimated: int) -> int:
    """Return by how many tokens an estimate is too high for a model whose provider has measured nothing of it."""
    return -int((tx.steps.get_factor(model) - 1) * estimated)


def _texts(prefix: Prefix) -> tuple[str, str, str, str]:
    """Return the texts of a prefix that are measured: tools, system prompt, opening and summary."""
    return tools_text(prefix.tools), prefix.system, prefix.opening, prefix.summary


def _dropped_text(old: str, new: str) -> str:
    """Return the middle of the old text, without the beginning and end that it shares with the new one."""
    if old == new:
        return ""
    shortest = min(len(old), len(new))
    first = next((place for place in range(shortest) if old[place] != new[place]), shortest)
    last = next((place for place in range(shortest - first) if old[-1 - place] != new[-1 - place]), shortest - first)
    return old[first : len(old) - last]


def dropped_rows(
    overcount: int, rows: Sequence[Message], stubs: Mapping[int, int], counter: TokenCounter, *, estimated: int
) -> int:
    """Return the overcount that remains without these rows. `overcount`: by how much `estimated` was too high."""
    texts = [text_of(apply_stubs(message, stubs).parts) for message in rows] if overcount > 0 else []  # else unused
    return reduce_overcount(
        overcount,
        estimated=estimated,
        dropped=sum(row_tokens(message, stubs, counter) for message in rows),
        dropped_at_least=sum(map(counter.at_least, texts)),
    )
