"""The hidden agents that helpers are, and the conversations in which they work: made at the first call, brought up to
date where a definition changed, deleted with the agent that calls."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound, ToolError
from perdure.core.features import feature_settings
from perdure.core.ids import PREFIXES, AgentId, ConversationId, RunId
from perdure.core.models import Models
from perdure.core.runs import Run
from perdure.core.text.json_strings import sorted_json
from perdure.domain.agents.units import AgentChanges, NewAgent, create_agent, update_agent
from perdure.domain.blocks.units import NewBlock
from perdure.domain.provenance.policy import UNTRUSTED_WRITES
from perdure.engine.conversations.importing import fork
from perdure.engine.conversations.reset import AGENT_DELETED, delete_agent
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.prefixes import agent_of_run
from perdure.engine.records.run_request import RunRequest
from perdure.features.helpers.catalog import Helper, Roster, load_roster
from perdure.features.helpers.feature import HELPER_OF
from perdure.features.helpers.tables import HelperAgent, HelperAgents
from perdure.features.plugins.projects import PROJECT
from perdure.library.agents.agents import AGENT_STATES, SET_BELONGINGS
from perdure.storage.tx import Tx

_AUTHOR = Author(kind="system", id="perdure")
_NO_NAME = re.compile(r"[^\w '-]+")
_NOTES = NewBlock(label="notes", description="What you have learned that helps you with later tasks.")
_PROJECT_BLOCK = "project"
_KEPT_SETTINGS: Final = ("approval_waived", PROJECT, UNTRUSTED_WRITES)
"""What holds for helpers as it holds for the agent that calls."""
_OF_MODEL: Final = ("context_window_tokens", "max_output_tokens", "reasoning_effort", "max_reasoning_tokens", "extra")
"""What holds for a helper only as long as it runs on the same model."""


class HelperCycle(ToolError):
    """A helper calls itself, or one that is waiting for it; `names`: the waiting helpers, the outermost first."""

    def __init__(self, names: Sequence[str], name: str) -> None:
        line = " → ".join((*names, name))
        super().__init__(f"helper {name!r} waits for your own answer ({line}): do it yourself, or call another one")
        self.names, self.name = names, name


@dataclass(frozen=True, slots=True)
class Caller:
    """A run that calls a helper.

    Args:
        agent: its agent, with the model of the run.
        waiting: the names of the helpers that wait for it, the first one first.
    """

    run: Run
    agent: Agent
    waiting: tuple[str, ...]
    roster: Roster

    def get(self, name: str) -> Helper:
        """Return the helper of this name. Raises: HelperUnknown, HelperCycle."""
        helper = self.roster.get(name)
        if name in self.waiting:
            raise HelperCycle(self.waiting, name)
        return helper


def load_caller(tx: Tx, run_id: RunId, models: Models) -> Caller:
    """Return the run that calls a helper, and which helpers it may call. Raises: NotFound."""
    run = tx.runs.get(run_id)
    agent = agent_of_run(tx.conversations.get_agent(run.key.agent_id, run.conversation_seq), run, models)
    waiting, above = list[str](), run
    while above.options.helper and above.options.caller:
        waiting.insert(0, above.options.helper)
        try:
            above = tx.runs.get(above.options.caller)
        except NotFound:  # it was deleted with its agent
            break
    limit = run.options.tools if run.options.helper else None  # a helper gives no tools that it does not have
    return Caller(run, agent, tuple(waiting), load_roster(tx, agent, limit))


def conversation_of_call(key: str) -> ConversationId:
    """Return the id of the conversation of a call: the same one when the call is repeated after a crash."""
    number = uuid.UUID(bytes=hashlib.sha256(key.encode()).digest()[:16], version=4)
    return ConversationId(f"{PREFIXES['conversation']}-{number}")


def find_begun(tx: Tx, conversation_id: ConversationId, key: str) -> Run | None:
    """Return the run that an earlier try of a call has begun; None: there is none."""
    with suppress(NotFound):
        conversation = tx.conversations.get(conversation_id)
        if (found := tx.runs.find_by_key(conversation.agent_id, conversation.seq, key)) is not None:
            return found[0]
    return None


def open_conversation(
    tx: Tx, caller: Caller, helper: Helper, conversation_id: ConversationId, ports: Ports, inputs: UnitInputs
) -> Conversation:
    """Return the conversation in which a helper works for one call, with its agent; both are made if need be. Raises:
    NotFound; TooMany: the message that all goes back to has caused as many runs of helpers as it may."""
    run = caller.run
    _check_count(tx, run.options.origin or run.id)
    tx.agents.lock(run.key.agent_id)
    with suppress(NotFound):
        return tx.conversations.get(conversation_id)
    if helper.is_fork:
        source = tx.conversations.get_by_seq(run.key.agent_id, run.conversation_seq)
        return fork(tx, source, conversation_id, inputs, hidden=True, keeps_prefix=True)
    agent_id = run.key.agent_id if helper.memory == "agent" else put_agent(tx, run.key.agent_id, helper, ports, inputs)
    return tx.conversations.add(agent_id, conversation_id, at=inputs.now, summary=f"For {run.id}", hidden=True)


def check_asked(tx: Tx, request: RunRequest) -> None:
    """Check that the run of a helper may begin. Raises: TooMany."""
    if request.options.helper and request.options.origin is not None:
        _check_count(tx, request.options.origin)


def _check_count(tx: Tx, origin: RunId) -> None:
    """Check that another run of a helper may go back to this one. Raises: TooMany."""
    tx.limits.check("helpers_per_run", 1 + tx.runs.count_by_origin(origin))


def put_agent(tx: Tx, agent_id: AgentId, helper: Helper, ports: Ports, inputs: UnitInputs) -> AgentId:
    """Create the hidden agent of a helper, or bring it up to date with the definition and with the agent that calls.
    Return its id. Raises: NotFound."""
    parent = tx.agents.get(agent_id)
    wanted = _agent_fields(tx, parent, helper)
    digest = hashlib.sha256(sorted_json(wanted).encode("utf-8", "surrogatepass")).hexdigest()
    known = tx.of(HelperAgents).list(agent_id).get(helper.name)
    if known is not None and known.digest == digest:
        with suppress(NotFound):  # somebody deleted it
            return tx.agents.get(known.helper_id).id
    fields = wanted["fields"] | {"settings": wanted["settings"]}
    helper_id = None if known is None else _update(tx, known.helper_id, fields, inputs.now)
    if helper_id is None:
        own = () if wanted["shares"] else (_NOTES,)
        new = NewAgent(**fields, name=wanted["name"], tools=(), blocks=own, hidden=True)
        made = create_agent(tx, new, ids=inputs.ids, author=_AUTHOR, at=inputs.now)
        link = {"agent_id": agent_id, "name": helper.name}
        tx.agents.put(replace(made, settings={**made.settings, HELPER_OF: link}))
        helper_id = made.id
    _set_belongings(tx, helper_id, wanted, ports)
    tx.of(HelperAgents).put(agent_id, helper.name, HelperAgent(helper_id, digest))
    return helper_id


def find_parent(tx: Tx, agent: Agent) -> Agent | None:
    """Return the agent that a helper works for in the end; None: the agent is no helper, or that one was deleted."""
    found = None
    with suppress(NotFound):
        while isinstance(link := (found or agent).settings.get(HELPER_OF), Mapping):
            found = tx.agents.get(AgentId(link["agent_id"]))
    return found


def _agent_fields(tx: Tx, parent: Agent, helper: Helper) -> dict[str, Any]:
    """Return what the agent of a helper has to be like, as JSON."""
    shares = helper.memory in ("shared", "read-only")
    blocks = tx.blocks.list_by_agent(parent.id)
    wants_project = helper.field("project_notes", False)
    shown = [block.id for block in blocks if shares or (wants_project and block.label == _PROJECT_BLOCK)]
    folders = [one.id for state in AGENT_STATES(tx, [parent.id]) for one in state.get(parent.id, {}).get("folders", ())]
    settings = {name: parent.settings[name] for name in (*_KEPT_SETTINGS, *_OF_MODEL) if name in parent.settings}
    settings |= {
        name: one.of_companions for name, (_, one) in feature_settings().items() if one.of_companions is not None
    }
    rules = [rule for rule in parent.settings.get("tool_rules", ()) if rule["type"] == "requires_approval"]
    rules = [rule for rule in rules if rule["tool_name"] in helper.tools]
    return {
        "name": _NO_NAME.sub("-", f"{parent.name[:120]} - {helper.name}")[:200],
        "fields": {
            "model": parent.model,
            "follows_default": parent.follows_default,
            "system": helper.prompt or None,
            "description": helper.definition.description[:1_000] or None,
            "timezone": parent.timezone,
        },
        "settings": settings | ({"tool_rules": rules} if rules else {}),
        "tools": list(helper.tools),
        "shares": shares,
        "blocks": shown,
        "archives": [archive.id for archive in tx.archives.list_by_agent(parent.id)] if shares else [],
        "folders": folders,
    }


def _update(tx: Tx, helper_id: AgentId, fields: Mapping[str, Any], at: datetime) -> AgentId | None:
    """Give the agent of a helper these fields; return its id, None if somebody deleted it."""
    try:
        update_agent(tx, helper_id, cast(AgentChanges, fields), author=_AUTHOR, at=at)
    except NotFound:
        return None
    return helper_id


def _set_belongings(tx: Tx, helper_id: AgentId, wanted: Mapping[str, Any], ports: Ports) -> None:
    """Give a helper's agent the tools, blocks, archives and folders it needs, and no others of the caller."""
    tools = {tool.name for tool in tx.tools.list_by_agent(helper_id)}
    tx.tools.detach(helper_id, *sorted(tools - {*wanted["tools"]}))
    tx.tools.attach(helper_id, *(name for name in wanted["tools"] if name not in tools))
    own = {block.id: block.label for block in tx.blocks.list_by_agent(helper_id)}
    labels = {tx.blocks.get(one).label for one in wanted["blocks"]}
    for block_id, label in own.items():
        if block_id not in wanted["blocks"] and (label != _NOTES.label or label in labels):
            tx.blocks.detach(helper_id, block_id)
    tx.blocks.attach(helper_id, *(one for one in wanted["blocks"] if one not in own))
    if wanted["shares"]:
        archives = [archive.id for archive in tx.archives.list_by_agent(helper_id)]
        for archive_id in archives:
            if archive_id not in wanted["archives"]:
                tx.archives.detach(helper_id, archive_id)
        tx.archives.attach(helper_id, *wanted["archives"])
    if SET_BELONGINGS.functions:
        SET_BELONGINGS(tx, ports, helper_id, {"folders": wanted["folders"]})


async def remove_of_plugin(app: App, plugin: str) -> int:
    """Delete the agents of the helpers of a plug-in, with all that they did; return how many there were."""
    found = await app.ports.store.read(lambda tx: tx.of(HelperAgents).list_of_plugin(plugin))
    for agent_id, name, helper_id in found:
        with suppress(NotFound):  # somebody deleted it
            await delete_agent(helper_id, app.ports)
        await app.ports.store.write(lambda tx, key: tx.of(HelperAgents).delete(*key), (agent_id, name))
    return len(found)


def delete_helpers(tx: Tx, agent: Agent, at: datetime) -> Sequence[AgentId]:
    """Delete the helpers of an agent that is to be deleted, and return their ids."""
    deleted: list[AgentId] = []
    for helper in tx.of(HelperAgents).list(agent.id).values():
        with suppress(NotFound):  # somebody deleted it
            others = AGENT_DELETED(tx, tx.agents.get(helper.helper_id), at)
            tx.agents.delete(helper.helper_id)
            deleted += [helper.helper_id, *(one for ids in others for one in ids)]
    return deleted
