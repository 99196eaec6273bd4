"""What the requests and summaries of a conversation cost."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise, starmap

from perdure.app import prices_of
from perdure.context.request.explain import Prices
from perdure.context.sections.assemble import View
from perdure.context.window.budget import Segment, segments
from perdure.core.conversations import Conversation
from perdure.core.ids import ConversationId
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode
from perdure.core.ports import TokenCounter
from perdure.core.runs import Run, RunKey, Step
from perdure.engine.prompt.prefixes import prefix_of_run
from perdure.features.costs.ledger import CostLedger, RequestCost, Rewrite, build_ledger, request_cost, summary_cost
from perdure.library.parts.checks import check_limit
from perdure.library.parts.part import AsyncAgentPart, find_conversation
from perdure.storage.tx import Tx

NODES_MAX = 10_000
STEPS_AT_ONCE = 100
"""So many steps are read in one transaction, so that a long conversation does not hold up others."""


class AsyncCosts(AsyncAgentPart):
    """What an agent costs."""

    async def costs(self, *, conversation: ConversationId | None = None, limit: int = 1_000) -> CostLedger:
        """What a conversation (default: the agent's first) costs: its newest requests and the summaries since then.

        Each request tells the tokens, cache use and price of its parts, and what broke the prefix before it.

        Args:
            limit: how many requests, at most 10,000.
        Raises: InvalidInput: a wrong limit, or the catalog can't be read; NotFound.
        """
        check_limit(limit)
        store, models, counter = self._ports.store, self._app.models, _CachedCounter(self._ports.counter)
        found = await store.read(find_conversation, self.id, conversation)
        steps: list[Step] = []
        while (missing := limit + 1 - len(steps)) > 0:  # the first one listed is compared with the one before it
            page = await store.read(_list_steps, found, steps[-1] if steps else None, min(STEPS_AT_ONCE, missing))
            if not page:
                break
            steps += page
        steps.reverse()
        prices = {model: prices_of(model, models) for model in {step.model for step in steps}}
        requests: list[RequestCost] = []
        for start in range(0, len(steps), STEPS_AT_ONCE):
            group = steps[start : start + STEPS_AT_ONCE]
            before = requests[-1] if requests else None
            requests += await store.read(_read_requests, found, group, before, prices, counter)
        steps, requests = steps[-limit:], requests[-limit:]
        left_out, nodes = await store.read(_read_summaries, found, steps[0] if steps else None)
        summarisers = {node.model for node in nodes if node.model is not None}
        prices |= {model: prices_of(model, models) for model in summarisers - prices.keys()}
        summaries = [summary_cost(node, prices.get(node.model or "", Prices())) for node in nodes]
        return build_ledger(found.id, requests, summaries, left_out=left_out)


class _CachedCounter:
    """A `TokenCounter` that remembers the count of each text: requests of one conversation share most of theirs."""

    def __init__(self, counter: TokenCounter) -> None:
        self.count, self.at_least = functools.cache(counter.count), counter.at_least


def _list_steps(tx: Tx, conversation: Conversation, before: Step | None, count: int) -> Sequence[Step]:
    """The newest `count` steps of a conversation, newest first; `before`: only those that come before this one."""
    return tx.steps.list(conversation.agent_id, conversation_seq=conversation.seq, limit=count, before=before)


def _read_requests(
    tx: Tx,
    conversation: Conversation,
    steps: Sequence[Step],
    earlier: RequestCost | None,
    prices: Mapping[str, Prices],
    counter: TokenCounter,
) -> Sequence[RequestCost]:
    """What the requests of these steps cost, oldest first. `earlier`: the request before them; `prices`: by model."""
    agent_id, seq = conversation.agent_id, conversation.seq
    found = tx.runs.list_by_keys([RunKey(agent_id, step.run_seq) for step in steps])
    runs = {key.seq: run for key, run in found.items()}
    before = _list_steps(tx, conversation, steps[0], 1)
    prefix_seqs = [before[0].recipe.prefix_seq if before else -1, *(step.recipe.prefix_seq for step in steps)]
    rows = tx.prefixes.list_rewrites(agent_id, seq, after_seq=min(prefix_seqs), upto_seq=max(prefix_seqs))
    costs: list[RequestCost] = [] if earlier is None else [earlier]
    requests = _read_segments(tx, steps, runs, counter)
    for step, request_segments, (old, new) in zip(steps, requests, pairwise(prefix_seqs), strict=True):
        costs.append(
            request_cost(
                step,
                runs[step.run_seq].id,
                request_segments,
                before=costs[-1] if costs else None,
                rewrites=[rewrite for rewrite in starmap(Rewrite, rows) if old < rewrite.prefix_seq <= new],
                prices=prices[step.model],
            )
        )
    return costs[earlier is not None :]


def _read_segments(
    tx: Tx, steps: Sequence[Step], runs: Mapping[int, Run], counter: TokenCounter
) -> Iterator[tuple[Segment, ...]]:
    """The segments of each step's request, in order; `runs` are by number. Steps with one prefix share its messages."""

    for (prefix_seq, revision, _), group in groupby(
        steps, lambda one: (one.recipe.prefix_seq, one.recipe.settings_revision, runs[one.run_seq].options.system)
    ):
        same = list(group)
        run = runs[same[0].run_seq]
        prefix = prefix_of_run(tx.prefixes.get(run.key.agent_id, prefix_seq), run, counter)

        def rows(from_seq: int, upto_seq: int, run: Run = run, revision: int = revision) -> Sequence[Message]:
            """Return the rows of the conversation in [from_seq, upto_seq), as the settings revision shows them."""
            return tx.messages.view(
                run.key.agent_id, run.conversation_seq, from_seq=from_seq, upto_seq=upto_seq, settings_revision=revision
            )

        pinned = tuple(row for seq in prefix.pinned for row in rows(seq, seq))
        following = rows(prefix.from_message_seq, max(step.recipe.upto_message_seq for step in same))
        for step in same:
            recipe = step.recipe
            shown = tuple(row for row in following if row.seq <= recipe.upto_message_seq)
            # The last three, messages and digest, are left out: only the sizes of segments are needed.
            view = View(prefix, recipe.stubs, pinned, shown, (), None, None)
            yield segments(view, stubs=recipe.stubs, status=recipe.tail, run_seq=step.run_seq, counter=counter)


def _read_summaries(tx: Tx, conversation: Conversation, first: Step | None) -> tuple[int, Sequence[SummaryNode]]:
    """How many steps come before `first`, the first one listed, and the summaries since then; without one, all."""
    agent_id, seq = conversation.agent_id, conversation.seq
    nodes = tx.nodes.list(agent_id, seq, limit=NODES_MAX)
    if first is None:
        return 0, nodes
    left_out = tx.steps.count_before(first, seq)
    return left_out, [node for node in nodes if not left_out or node.created_at >= first.created_at]
