"""Arguments for every verb of the store, by the names and types of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.agents import AgentFilter, IdentityFilter
from perdure.core.blocks import BlockFilter
from perdure.core.conversations import ConversationFilter
from perdure.core.events import RunQueued
from perdure.core.forgetting.corrections import CorrectionItem
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import (
    DEFAULT_ORG,
    AgentId,
    ConversationId,
    EntityId,
    EpisodeId,
    FactId,
    GraphId,
    GroupId,
    McpServerId,
    MessageId,
    RunId,
    ScheduleId,
    StepId,
    ToolId,
)
from perdure.core.incoming.principals import PeriodUsage
from perdure.core.messages import Draft, MessageFilter, Text
from perdure.core.models import Exchange, ProviderFilter
from perdure.core.passages import PassageFilter
from perdure.core.runs import Callback, RunFilter, StepFilter, Usage
from perdure.core.secrets import ORGANISATION
from perdure.core.sources import Source
from perdure.core.specs import ToolCode, ToolFilter
from perdure.core.text.words import Clause, parse_query
from perdure.features.facts.values.facts import FactFilter
from perdure.features.files.values import FilePart
from perdure.features.groups.values import GroupFilter, GroupMember, GroupMessage, GroupPlan, GroupTurn
from perdure.features.helpers.tables import HelperAgent
from perdure.features.mcp.values import McpTool
from tests.contracts.base import ADA, LATER, UNTIL
from tests.contracts.manifests import new_applied
from tests.contracts.memory_git import PACK
from tests.contracts.nodes import node_of
from tests.contracts.openai_histories import new_chain
from tests.contracts.organisations import MODEL, VECTOR, Property
from tests.contracts.schedules import firing_at
from tests.contracts.skills import new_version

USED = {"key-00000000-0000-4000-8000-ffffffffffff": PeriodUsage(tokens=1)}
NEW = "00000000-0000-4000-8000-ffffffffffff"

PLAIN: Mapping[str, Any] = {
    "revision": 1_000,
    **{"gaps": [], "first_seq": 0, "next_node": 0},
    **{"action": "companion", "traits": {"calling": "text"}, "sort": "name", "offset": 0},
    **{"above": None, "below": None, "newest_first": True, "rows": 0, "words": [Clause(("text",))]},
    **{"after": -1, "after_seq": -1, "after_version": -1, "again": LATER, "answer": {}, "at": LATER, "author": ADA},
    **{"background": False, "before": UNTIL + timedelta(days=9), "begins_at": 1, "call_ids": ["other"]},
    **{"claimed": UNTIL, "code": ToolCode(source="", function="look"), "column": "uses", "context": ["more"]},
    "conversation_seq": 0,
    **{
        "data": b"stolen",
        "digest": "digest",
        "dimensions": 1,
        "events": [],
        "exchange": Exchange(request={}, response={}),
    },
    **{
        "before_seq": 9,
        "expected": 0,
        "factor": 0.5,
        "failure": None,
        "first_line": 1,
        "first_message_seq": 7,
        "from_seq": 0,
    },
    **{
        "hashes": [b"hash"],
        "idempotency_key": "key",
        "index": 1,
        "keep": 0,
        "keys": ["other"],
        "kind": "archive",
        "label": "human",
    },
    **{"last_line": 1, "lease_owner": None, "lease_until": None, "limit": 9, "most": 9, "pattern": "", "max_steps": 5},
    **{
        "model": "m",
        "opens": True,
        "overcount": 0,
        "owner": "here",
        "owner_kind": "archive",
        "period": "2026-01-31",
        "query": parse_query("walrus"),
    },
    **{
        "resumes": 0,
        "run_seq": 0,
        "sealed": b"stolen",
        "seen": {"block-x": 9},
        "seq": 0,
        "run_seqs": [0, 1],
        "seqs": [0, 1],
        "since": LATER,
    },
    **{"step_count": 1, "stubs": {}, "suffix": ".md", "tokens": [1], "tools": [{"name": "stolen"}], "turn_from": 0},
    **{"until": LATER, "upto_seq": 1, "usage": Usage(input_tokens=1), "version": 0, "view_tokens": 1},
    **{"feedback": "positive", "tags": ("stolen",)},
    **{"redactor": Redactor("walrus"), "table": "messages", "text": "stolen", "targets": [], "count": 1},
    **{"items": [CorrectionItem(kind="block", id="block-x", before="0")]},
    **{"waiting_input": "stolen", "first_char": 0, "chars": 250_000},
    **{
        "turns": 9,
        "community_seq": 1,
        "dropped": {"stolen": 1},
        "facts": [],
        "episode_seqs": [1],
        "first_seqs": [1, 2],
        "names": ["Ada"],
    },
    **{"calls": 1, "input_tokens": 10, "output_tokens": 2},
    **{
        "refs": ["x"],
        "sources": [(2, 1)],
        "text_seqs": [0, 1],
        "text_seq": 0,
        "episode_seq": 1,
        "message_seqs": [0, 1],
    },
}
"""Parameters that are nobody's: the same for every verb."""

OF_VERBS: Mapping[str, Any] = {
    "system_messages.renew.blocks": {"stolen": 1},
    **{"identities.find_by_key.identifier_key": "ann", "identities.find_by_key.project_id": None},
    **{"agents.find_by_name.name": "ada", "tools.find_by_name.name": "look", "folders.find.name": "docs"},
    **{"servers.find_by_name.name": "files", "files.find.name": "plan.md", "agent_files.find_by_path.name": "plan.md"},
    **{"tools.attach.names": ("look",), "tools.detach.names": ("look",), "servers.delete_tool.name": "look"},
    **{
        "tools.find.name": "look",
        "tools.with_own_names.tools": (),
        "callbacks.change_all.change": lambda callback: callback,
    },
    **{"secrets.put.name": "TOKEN", "secrets.find.name": "TOKEN", "secrets.delete.name": "TOKEN"},
    **{"secrets.list_behind.name": "", "used.add.used": USED, "used.add_today.used": USED},
    **{
        "files.find_by_digest.digest": "plan.md",
        "servers.put_listing.failure": "stolen",
        "runs.end.reason": "end_turn",
    },
    **{"vectors.fail.reason": "stolen", "steps.end.status": "failed", "messages.revise.parts": (Text("stolen"),)},
    **{"files.put_parts.parts": [FilePart(seq=1, first_line=2, first_char=0, text="stolen")]},
    **{"messages.append.drafts": [Draft(id=MessageId(f"message-{NEW}"), role="user", parts=(Text("hello"),))]},
    **{"vectors.put.rows": [(0, VECTOR)], "vectors.store_cache.rows": [(b"hash", VECTOR, None)]},
    **{"runs.add.run_id": RunId(f"run-{NEW}"), "steps.add.step_id": StepId(f"step-{NEW}")},
    **{"conversations.add.conversation_id": ConversationId(f"conv-{NEW}")},
    **{"vectors.claim.at": LATER, "vectors.renew.until": LATER, "messages.view.upto_seq": 99},
    **{
        f"vectors.{verb}.model": MODEL
        for verb in ("claim", "fill", "open", "put", "restart", "use_embedding", "waits", "words")
    },
    "files.put_bytes.seq": 1,
    **{"group_turns.begin.plan": GroupPlan(kind="dynamic", participants=()), "group_turns.end.reason": "end_turn"},
    "group_messages.append.messages": [
        GroupMessage(group_id=GroupId(f"group-{NEW}"), turn_seq=0, kind="user", created_at=LATER)
    ],
    **{"groups.share_block.attached": True, "group_messages.list_of_turn.turn_seq": 0},
    **{
        "passes.end.outcome": "finished",
        "passes.narrow.upto_seq": 0,
        "passes.narrow.last_message_id": MessageId("message-stolen"),
        "passes.list.before": 9,
    },
    **{"passes.count_turns.from_seq": 0, "passes.count_turns.after_run_seq": -1},
    **{"unfinished.link.table": "blocks", "corrections.forgotten_in.kind": "block"},
    **{"owners.list_agents.table": "blocks", "identities.list_owners.kind": "agent"},
    "callbacks.request.callback": Callback(url="https://stolen.example"),
    "callbacks.put.due_at": None,
    **{"schedules.advance.firing": firing_at(UNTIL), "schedules.advance.next_at": LATER},
    **{"schedules.put_next.status": "paused", "schedules.put_next.next_at": None},
    **{f"helper_agents.{verb}.name": "sea:walrus" for verb in ("put", "delete")},
    **{
        "helper_agents.list_of_plugin.plugin": "sea",
        "helper_agents.put.helper": HelperAgent(AgentId("agent-stolen"), ""),
    },
    **{"imported_items.put.digests": {"passage-stolen": ""}, "imported_items.find.ids": ["passage-1"]},
    **{"imported_items.find_owner.id_": "passage-1", "imported_items.owners.id_": "passage-1"},
    **{"skills.add.version": new_version(), "skills.add_version.version": new_version(3, text="stolen")},
    **{f"skills.{verb}.name": "walrus" for verb in ("find", "add_use")},
    **{"openai_histories.add.rows": [new_chain("stolen")], "openai_histories.find.digests": ["d1"]},
    "skills.archive_unused.before": LATER,
    **{
        "manifest_objects.list.manifest": "office",
        "manifest_objects.put.thing": new_applied("stolen"),
        "manifest_objects.is_shared.thing": new_applied("stolen"),
    },
    **{"proposals.find_equal.state": "open", "proposals.decide.state": "approved"},
    **{
        "memory_git.advance.pack": PACK,
        "memory_git.advance.whole": True,
        "memory_git.reasons.versions": [0],
        "memory_git.put_file.by": "stolen",
    },
    "memory_git.put_file.path": "walrus.md",
    "runs.put_client_tools.digest": "other",
    **{"sources.settings_of_sharers.name": "companion", "sources.settings_of_sharers.but": "agent-nobody"},
    **{"graphs.find_by_name.name": "ada", "graphs.take_numbers.kind": "fact"},
    **{"sources.add_to_message.sources": [Source("web", "https://stolen.example")], "sources.add_to_message.seq": 7},
    **{"sources.list_first.before_seq": 99, "sources.list_first.from_seq": 0, "sources.list_first.most": 9},
    **{"sources.list_by_conversation.before_seq": 99, "sources.list_by_refs.refs": ["0", "1"]},
    **{"journal.mark_reverted.refs": ["1"], "sources.delete.refs": ["1"]},
    "sources.settings_of_sharers.name": "tool_rules",
}
"""Parameters that are nobody's and differ by verb."""


_OF_PAGES = {"blocks": "Block", "groups": "Group", "identities": "Identity", "providers": "Provider", "tools": "Tool"}
"""A noun that is listed by pages -> what its filters and ids are called after."""


def _kind_of(noun: str, parameter: inspect.Parameter) -> str:
    """The type of a parameter, of what all such nouns share as it is for one of them."""
    kind = str(parameter.annotation)
    if noun in _OF_PAGES and kind == "Filter":
        return f"{_OF_PAGES[noun]}Filter"
    return f"{_OF_PAGES[noun]}Id" if noun in _OF_PAGES and kind == "str | None" and parameter.name in _PLACES else kind


_PLACES = ("after", "before")


class Values:
    """The arguments that stand for one organisation's things."""

    def __init__(self, of: Property) -> None:
        self._of = of
        self._owned: Mapping[str, Any] = {
            **{"agent_id": of.agent.id, "agent": of.agent, "block_id": of.block.id, "block": of.block},
            **{"archive_id": of.archive.id, "archive": of.archive, "passage_id": of.passage.id, "passage": of.passage},
            **{"passages": [replace(of.passage, text="stolen")], "folder_id": of.folder.id, "folder": of.folder},
            **{"file_id": of.file.id, "file": of.worked_on, "conversation_id": of.conversation.id},
            **{"conversation": of.conversation, "message_id": of.message.id, "run": of.run, "key": of.run.key},
            **{"run_id": of.run.id, "step": of.step, "step_id": of.step.id, "node": node_of(of.agent.id)},
            **{"tool_id": of.tool.id, "tool_ids": [of.tool.id], "tool": of.tool, "server": of.server},
            **{"server_id": of.server.id, "opening": of.opening, "prefix": of.prefix, "number": of.owner.number},
            **{"scope": of.scope, "claim": of.claim, "claims": [of.claim], "owner_id": of.agent.id},
            **{"provider_id": of.provider.id, "provider": of.provider},
            **{"config_id": of.sandbox.id, "config": of.sandbox},
            **{"variable_id": of.variable.id, "variable": of.variable},
            **{"identity_id": of.identity.id, "identity": of.identity},
            **{"batch_id": of.batch.id, "batch": of.batch},
            **{"correction": of.correction, "erasure": replace(of.erasure, text="")},
            **{"recipe": of.step.recipe, "block_ids": (of.block.id,)},
            **{"graph_id": of.graph.id, "graph": of.graph, "entity_id": of.entity.id, "fact_id": of.fact.id},
            **{"entity": replace(of.entity, name="stolen"), "episode_id": of.episode.id, "rule": of.rule},
            **{"community": replace(of.community, name="stolen")},
            **{"group_id": of.group.id, "group": replace(of.group, description="stolen"), "turn": of.turn},
            **{"pass_": of.companion_pass, "agent_ids": [of.agent.id], "owner_ids": [of.agent.id]},
            **{"identity_ids": [of.identity.id], "archive_ids": [of.archive.id], "folder_ids": [of.folder.id]},
            **{"member": GroupMember(agent_id=of.agent.id, name="ada", conversation_seq=1)},
            **{"schedule_id": of.schedule.id, "schedule": of.schedule},
            **{"skill": replace(of.skill, text="stolen"), "proposal": of.proposal, "snapshot": of.snapshot},
        }
        self._owned_by_verbs: Mapping[str, Any] = {
            "messages.append.to": of.run,
            **{
                f"{noun}.{verb}.id_": id_
                for verb in ("get", "number")
                for noun, id_ in {
                    **{"archives": of.archive.id, "blocks": of.block.id, "files": of.file.id, "folders": of.folder.id},
                    **{"graphs": of.graph.id, "identities": of.identity.id, "servers": of.server.id},
                    **{"providers": of.provider.id, "tools": of.tool.id},
                }.items()
            },
            **{"runs.keep_lease.row": of.run, "group_turns.keep_lease.row": of.turn},
            "messages.find_existing.ids": [of.message.id],
            **{key: [of.block.id] for key in ("unfinished.link.ids", "corrections.forgotten_in.ids")},
            "unfinished.show_ids.ids": [of.passage.id],
            "messages.find_reset.ids": [of.reset_message.id],
            "passages.find_places.ids": [of.passage.id],
            "passages.list_merged.into": of.passage.id,
            "upkeep.check.owner": of.owner,
            "vectors.open.owner_id": of.bare_owner.id,
            "vectors.open.number": of.bare_owner.number,
            "vectors.words.texts": [(of.owner.number, of.passage.seq)],
            "folders.find_by_archive.archive_id": of.folder.archive_id,
            "servers.put_tool.tool": McpTool(server_id=of.server.id, name="look", local_name="stolen"),
            "events.add.events": [RunQueued(of.run.id)],
            "agents.add.agent": replace(of.agent, id=AgentId(f"agent-{NEW}")),
            "blocks.add.block": replace(of.block, id=type(of.block.id)(f"block-{NEW}")),
            "archives.add.archive": replace(of.archive, id=type(of.archive.id)(f"archive-{NEW}")),
            "passages.add.passages": [replace(of.passage, id=type(of.passage.id)(f"passage-{NEW}"))],
            "folders.add.folder": replace(
                of.folder, id=type(of.folder.id)(f"source-{NEW}"), name="new", archive_id=of.archive.id
            ),
            "files.add.file": replace(of.file, id=type(of.file.id)(f"file-{NEW}"), name="new.md"),
            "tools.add.tool": replace(of.tool, id=ToolId(f"tool-{NEW}"), spec=replace(of.tool.spec, name="new")),
            "tools.put.tool": replace(of.tool, id=ToolId(f"tool-{NEW}"), tags=("stolen",)),
            "tools.update.tool": replace(of.tool, tags=("stolen",)),
            "servers.add.server": replace(of.server, id=McpServerId(f"mcp_server-{NEW}"), name="new"),
            "servers.put.server": replace(of.server, name="stolen"),
            "providers.add.provider": replace(of.provider, id=type(of.provider.id)(f"provider-{NEW}"), name="new"),
            "providers.put.provider": replace(of.provider, base_url="stolen"),
            "sandbox.put.config": replace(of.sandbox, id=type(of.sandbox.id)(f"sandbox-{NEW}")),
            "sandbox.add_variable.variable": replace(
                of.variable, id=type(of.variable.id)(f"sandbox-env-{NEW}"), name="NEW"
            ),
            "identities.add.identity": replace(
                of.identity, id=type(of.identity.id)(f"identity-{NEW}"), identifier_key="new"
            ),
            "identities.put.identity": replace(of.identity, name="stolen"),
            "agents.put.agent": replace(of.agent, name="stolen"),
            "blocks.put.block": replace(of.block, value="stolen"),
            "archives.put.archive": replace(of.archive, name="stolen"),
            "passages.put.passage": replace(of.passage, text="stolen"),
            "passages.put_states.passages": [replace(of.passage, state="archived")],
            "folders.put.folder": replace(of.folder, name="stolen"),
            "conversations.put.conversation": replace(of.conversation, summary="stolen"),
            "system_messages.put.message": replace(of.system_message, text="stolen"),
            "runs.count_by_origin.origin": of.run.id,
            "runs.list_by_origin.origin": of.run.id,
            "runs.waiting_input.key": of.waiting_run.key,
            "runs.begin_input.key": of.waiting_run.key,
            "runs.claim.key": of.waiting_run.key,
            "runs.cancel_stopped.key": of.stopped_run.key,
            "files.purge.file": of.deleted,
            "batches.add.batch": replace(of.batch, id=type(of.batch.id)(f"job-{NEW}")),
            "owners.list_agents.owner_id": of.block.id,
            "files.has_waiting.archive_id": of.folder.archive_id,
            "corrections.get.number": of.correction.number,
            **{f"sources.{verb}.owner_id": of.block.id for verb in ("list_by_refs", "delete")},
            "journal.mark_reverted.owner_id": of.block.id,
            "sources.settings_of_sharers.but": of.agent.id,
            "sources.add.writes": [replace(of.memory_write, ref="7")],
            "journal.mark_reverted.reverted_by": f"{of.agent.id}/2",
            "journal.unmark_reverted.reverted_by": f"{of.agent.id}/1",
            "corrections.list_of.kind": "block",
            "corrections.list_of.id": of.block.id,
            "erasures.get.number": of.erasure.number,
            "graphs.add.graph": replace(
                of.graph,
                id=GraphId(f"graph-{NEW}"),
                fact_archive_id=of.archive.id,
                entity_archive_id=of.bare_archive.id,
            ),
            "graphs.put.graph": replace(of.graph, name="stolen"),
            "graphs.find_by_archive.archive_id": of.graph.fact_archive_id,
            "entities.of_facts.facts": [of.fact],
            "entities.add.entities": [replace(of.entity, id=EntityId(f"entity-{NEW}"), name="new")],
            "episodes.add.episodes": [replace(of.episode, id=EpisodeId(f"episode-{NEW}"), ref="new")],
            "facts.add.versions": [
                replace(of.fact, id=FactId(f"fact-{NEW}"), first_seq=0, text="new"),
                replace(of.fact, id=FactId(f"fact-{NEW[:-1]}0"), first_seq=0),
            ],
            "facts.list_by_ids.ids": [of.fact.id],
            "facts.list_between.subject": of.fact.subject,
            "facts.list_ended.entities": [of.fact.subject],
            "facts.list_among.entities": [of.fact.subject, of.fact.object],
            "facts.list_between.object_": of.fact.object,
            "facts.list_between.relation": of.fact.relation,
            **{
                f"{verb}.keys": [of.conversation.key, (of.agent.id, 0)]
                for verb in (
                    *("conversations.list_by_keys", "conversations.list_view_ids", "system_messages.find_ids"),
                    *("blocks.list_isolated_of",),
                )
            },
            "messages.views.starts": {(of.agent.id, 0): 0, of.conversation.key: 0},
            "runs.list_by_keys.keys": [of.run.key, of.stopped_run.key],
            "groups.add.group": replace(of.group, id=GroupId(f"group-{NEW}")),
            "group_turns.add.turn": GroupTurn(group_id=of.group.id, created_at=LATER),
            "group_turns.claim.key": (of.group.id, of.turn.seq + 1),
            "group_turns.request_cancel.key": (of.group.id, of.turn.seq),
            "schedules.add.schedule": replace(of.schedule, id=ScheduleId(f"schedule-{NEW}")),
            "skills.add.skill": replace(of.skill, name="new"),
            "skills.version.number": 1,
            "proposals.get.number": of.proposal.number,
            "snapshots.get.number": of.snapshot.number,
            "snapshots.delete.number": of.snapshot.number,
            "memory_git.advance.history": replace(of.git_history, head="stolen"),
            "memory_git.advance.commits": {(of.block.id, 0): ("stolen", "stolen")},
            "memory_git.reasons.thing": of.block.id,
            "callbacks.put.due": of.due,
            "callbacks.put.callback": replace(of.due.callback, url="https://stolen.example"),
        }

    def is_owned(self, noun: str, verb: str, parameter: inspect.Parameter) -> bool:
        """Whether the argument is something that an organisation has, and the verb can't be called without."""
        return parameter.default is parameter.empty and self._find(noun, verb, parameter.name) is not None

    def value(self, noun: str, verb: str, parameter: inspect.Parameter) -> Any:
        if parameter.default is not parameter.empty:
            return parameter.default
        if (owned := self._find(noun, verb, parameter.name)) is not None:
            return owned
        if parameter.name == "where":
            return next(self._filters(_kind_of(noun, parameter)))
        if (known := OF_VERBS.get(f"{noun}.{verb}.{parameter.name}", self)) is not self:
            return known
        assert parameter.name in PLAIN, f"add an argument {parameter} of {noun}.{verb} to OF_VERBS"
        return PLAIN[parameter.name]

    def variants(
        self, noun: str, verb: str, parameters: list[inspect.Parameter]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Values of parameters that may be left out, and of filters, which name something of the organisation."""
        flags = [{one.name: not one.default} for one in parameters if isinstance(one.default, bool)]
        for changes in flags:
            yield " ".join(changes), changes
        for parameter in parameters:
            for number, value in enumerate(self._optional(noun, parameter)):
                for flag in ({}, *flags):
                    yield " ".join((f"{parameter.name} {number}", *flag)), {parameter.name: value, **flag}
        if noun == "secrets" and any(parameter.name == "owner_id" for parameter in parameters):
            yield "of all", {"owner_id": ORGANISATION}

    def _optional(self, noun: str, parameter: inspect.Parameter) -> list[Any]:
        """What may be given for a filter, or for a parameter that may be left out."""
        of, kind = self._of, _kind_of(noun, parameter).removesuffix(" | None").rpartition(".")[2]
        if parameter.name == "where":
            return list(self._filters(kind))[1:]
        if parameter.default is parameter.empty:
            return []
        match parameter.name:
            case "after" | "before":
                value = self._cursor(kind)
            case "postings":
                # What a caller knows of an agent does not make it its own.
                value = {"Agent": replace(of.agent, org_id=DEFAULT_ORG), "Run": of.run}.get(kind)
            case "scope" if "Mapping" in kind:
                value = {"user_id": "ann"}
            case "dead_owner":
                value = "here"
            case "dead_owners":
                value = ["here"]
            case name:
                value = self._owned.get(name)
        return [] if value is None else [value]

    def _find(self, noun: str, verb: str, name: str) -> Any:
        place = f"{noun}.{verb}.{name}"
        if place in OF_VERBS or place in ("files.claim.owner", "events.list.after"):
            return None
        return self._owned_by_verbs.get(place, self._owned.get(name))

    def _cursor(self, kind: str) -> Any:
        of = self._of
        cursors = {"AgentId": of.agent.id, "BlockId": of.block.id, "ConversationId": of.second.id, "ToolId": of.tool.id}
        cursors |= {"IdentityId": of.identity.id, "ProviderId": of.provider.id, "ScheduleId": of.schedule.id}
        jobs = {"Run | datetime": of.run, "Batch | datetime": of.batch}
        return (cursors | jobs | {"Step": replace(of.step, index=9)}).get(kind)

    def _filters(self, kind: str) -> Iterator[Any]:
        """The empty filter of this kind first, then those that name something."""
        of, name = self._of, kind.removesuffix(" | None").rpartition(".")[2]
        match name:
            case "AgentFilter":
                yield from (AgentFilter(), AgentFilter(block_id=of.block.id), AgentFilter(name="ada"))
                yield from (AgentFilter(hidden=False), AgentFilter(identity_id=of.identity.id))
                yield AgentFilter(identifier_keys=("ann",))
            case "BlockFilter":
                yield from (BlockFilter(), BlockFilter(label="human"), BlockFilter(agents_min=1))
                yield from (BlockFilter(identity_id=of.identity.id), BlockFilter(identifier_keys=("ann",)))
            case "ProviderFilter":
                yield from (ProviderFilter(), ProviderFilter(name="mine"))
            case "GroupFilter":
                yield from (GroupFilter(), GroupFilter(agent_id=of.agent.id), GroupFilter(kind="round_robin"))
            case "IdentityFilter":
                yield from (IdentityFilter(), IdentityFilter(identifier_key="ann"))
            case "ToolFilter":
                yield from (ToolFilter(), ToolFilter(agent_id=of.agent.id), ToolFilter(ids=(of.tool.id,)))
                yield ToolFilter(names=("look",))
            case "RunFilter":
                yield from (RunFilter(), RunFilter(agent_ids=(of.agent.id,)))
                yield from (RunFilter(conversation_id=of.conversation.id), RunFilter(statuses=("running",)))
                yield RunFilter(batch_id=of.batch.id)
            case "StepFilter":
                yield from (StepFilter(), StepFilter(agent_id=of.agent.id), StepFilter(run_ids=(of.run.id,)))
                yield StepFilter(has_feedback=False)
            case "ConversationFilter":
                yield from (ConversationFilter(), ConversationFilter(agent_id=of.agent.id))
            case "MessageFilter":
                yield from (MessageFilter(), MessageFilter(roles=("user",)))
            case "PassageFilter":
                yield from (PassageFilter(), PassageFilter(tags=("sea",)))
            case "FactFilter":
                yield from (FactFilter(), FactFilter(as_of=LATER, entities=(of.entity.seq,)))
            case _:
                raise AssertionError(f"add the filter {name}")
