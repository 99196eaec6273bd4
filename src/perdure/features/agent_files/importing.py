"""One import of an agent file: tools, agents with all that is theirs, and groups; all of it, or nothing."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic import ValidationError
from starlette.datastructures import FormData

from perdure.core.errors import AlreadyExists, InvalidInput, ModelNotFound, NotFound, ToolBuiltIn, TooMany
from perdure.core.features import Point
from perdure.core.ids import AgentId, BlockId, FolderId, ToolId
from perdure.core.tasks import undone_by
from perdure.core.text.reprs import attributes
from perdure.domain.conversations.copy_values import AgentCopy, ConversationCopy
from perdure.domain.conversations.units import ConversationChanges
from perdure.features.agent_files.folders import add_files, create_folder
from perdure.features.agent_files.messages import FileMessages, parse_messages
from perdure.features.agent_files.reading import AgentDocument, FileAgent, FileGroup
from perdure.library.perdure import AsyncPerdure
from perdure.library.tools.tools import ToolState
from perdure.server.wire.agents import AgentIn
from perdure.server.wire.errors import AgentFileInvalid, NotSupported
from perdure.server.wire.tools import ToolIn

log = logging.getLogger(__name__)

NAME_MAX = 200
NOT_IN_A_NAME = re.compile(r"[^\w '\-]")
_COPY = "_copy"
_OWN_MODEL = ("model", "model_settings", "options")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What an importer chose: the `name` and models (handles) of all agents; `secrets`, variables that each agent gets;
    `copy_suffix`, names that end with `_copy`; `override_tools`, the file's source for tools that are here already."""

    name: str | None = None
    model: str | None = None
    embedding: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    copy_suffix: bool = False
    override_tools: bool = False
    without_messages: bool = False

    @classmethod
    def of(cls, form: FormData) -> ImportOptions:
        """Read the options from a form in Letta's API; new field names win over old ones. Raises: InvalidInput."""

        def text(*names: str) -> str | None:
            """Return the first non-empty text under these names."""
            return next((value for name in names if isinstance(value := form.get(name), str) and value), None)

        def flag(name: str) -> bool:
            """Return whether the field says yes."""
            return (text(name) or "").lower() in ("true", "1", "yes")

        try:
            secrets = json.loads(text("secrets", "env_vars_json") or "{}")
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"secrets must be a JSON object of names and values: {error}") from error
        if not isinstance(secrets, dict) or not all(isinstance(value, str) for value in secrets.values()):
            raise InvalidInput("secrets must be a JSON object of names and values")
        return cls(
            name=text("name", "override_name"),
            model=text("model", "override_model_handle"),
            embedding=text("embedding", "override_embedding_handle"),
            secrets=secrets,
            copy_suffix=flag("append_copy_suffix"),
            override_tools=flag("override_existing_tools"),
            without_messages=flag("strip_messages"),
        )


IMPORT_GROUP: Point[
    [AsyncPerdure, dict[str, Any], dict[str, Any], bool], Awaitable[Callable[[], Awaitable[object]] | None]
] = Point("import_group")
"""Make a group of its fields and those of its manager, and return what deletes it. If the last argument says that it is
a companion's, the manager has that companion already, which gets the fields: there is nothing to delete then.
Raises: ValidationError, InvalidInput, NotSupported, AlreadyExists, TooMany."""


class Import:
    """One import of a file's agents; blocks, tools and folders that several agents share are created once. `warnings`:
    one line for each difference from the file."""

    def __init__(self, library: AsyncPerdure, file: AgentDocument, options: ImportOptions) -> None:
        self._library, self._file, self._options = library, file, options
        self._tools: dict[str, ToolId] = {}  # by its id in the file, as the three below
        self._blocks: dict[str, BlockId] = {}
        self._folders: dict[str, FolderId] = {}
        self._agents: dict[str, AgentId] = {}
        self._group_deletes: list[Callable[[], Awaitable[object]]] = []
        self._made_tools: list[ToolId] = []
        self._replacements: list[ToolIn] = []
        self.warnings: list[str] = [*file.warnings]

    async def run(self) -> Sequence[AgentId]:
        """Make everything in the file, or nothing; return the ids of the agents. Raises: PerdureError."""
        async with undone_by(self._undo):
            return await self._run()

    async def _run(self) -> Sequence[AgentId]:
        """Check what can be checked, then make tools, agents and groups, and last replace tools that were here already,
        as that can't be undone. Return the ids of the agents."""
        agents = self._independent_agents()
        for file_id, agent in agents.items():
            self._agent_request(file_id, agent)  # raises if the agent can't be made
        conversations = {file_id: await self._conversations_of(file_id, agent) for file_id, agent in agents.items()}
        for file_id in dict.fromkeys(id_ for agent in agents.values() for id_ in agent.tool_ids):
            await self._import_tool(file_id, self._file.tools[file_id])
        for file_id, found in conversations.items():
            agent_id = await self._import_agent(file_id, agents[file_id])
            if images := sum(messages.images for _, messages in found):
                name = self._name_of(agents[file_id])
                self.warnings.append(f"{images} images in messages of {name!r} are left out")
            seqs = [await self._import_conversation(agent_id, number, *one) for number, one in enumerate(found)]
            if (copy := self._file.copies.get(file_id)) is not None:
                self.warnings += await self._library.transfer.restore_agent(agent_id, copy, seqs)
        for group in self._file.groups:
            await self._import_group(group)
        for tool in self._replacements:
            await self._library.tools.put(tool.new(), fields=tool.set_fields)
        return list(self._agents.values())

    def _independent_agents(self) -> Mapping[str, FileAgent]:
        """The agents of the file, by their ids in it, without companions, which are made with the agents they help."""
        companions = {id_ for group in self._file.groups for id_ in group.companions}
        for id_ in companions:
            name = self._name_of(self._file.agents[id_])
            self.warnings.append(f"agent {name!r:.80} is made anew, as a companion: its memory is that of its agent")
        return {id_: agent for id_, agent in self._file.agents.items() if id_ not in companions}

    async def _undo(self) -> None:
        """Delete the groups, agents, folders, blocks and tools that were made."""
        steps = [*self._group_deletes]
        steps += [functools.partial(self._library.delete_agent, id_) for id_ in self._agents.values()]
        steps += [functools.partial(self._library.folders.delete, id_) for id_ in self._folders.values()]
        steps += [functools.partial(self._library.blocks.delete, id_) for id_ in self._blocks.values()]
        steps += [functools.partial(self._library.tools.delete, id_) for id_ in self._made_tools]
        for step in steps:
            try:
                await step()
            except Exception:  # the error that ended the import is the one to raise
                log.exception("something that a failed import had made could not be deleted")

    async def _conversations_of(
        self, file_id: str, agent: FileAgent
    ) -> Sequence[tuple[ConversationCopy, FileMessages]]:
        """Parse an agent's conversations with their messages, its first one first. Raises: AgentFileInvalid."""
        first, *others = self._file.copies.get(file_id, AgentCopy()).conversations or (ConversationCopy(),)
        if self._options.without_messages:
            return [(replace(first, open_calls={}), FileMessages())]
        limit = self._library.app.ports.settings.message_limit_chars
        # An empty message stands where the first conversation has the system message.
        fields = [agent.fields, *({"messages": [{}, *one.messages]} for one in others)]
        return [
            (one, await asyncio.to_thread(parse_messages, agent_fields, limit_chars=limit, open_calls=one.open_calls))
            for one, agent_fields in zip((first, *others), fields, strict=True)
        ]

    async def _import_conversation(
        self, agent_id: AgentId, number: int, copy: ConversationCopy, messages: FileMessages
    ) -> int:
        """Make the conversation `copy` with its messages and return its `seq`; `number` 0: change the agent's first."""
        labels = {block.label for block in (await self._library.agent_of(agent_id).state()).blocks} & {*copy.blocks}
        values = cast(ConversationChanges, attributes(copy, "summary", "description", *_OWN_MODEL))
        try:
            if copy.model is not None:
                await self._library.handles.resolve(copy.model)
        except ModelNotFound as error:
            self.warnings.append(f"conversation {copy.summary or number!r:.80} has the agent's model: {error!s:.200}")
            values |= cast(ConversationChanges, dict.fromkeys(_OWN_MODEL))
        if number:
            made = await self._library.agent_of(agent_id).create_conversation(values, isolated_labels=sorted(labels))
        else:
            made = await self._library.agent_of(agent_id).change_conversation(None, values)
        new = made.conversation
        await self._library.agent_of(agent_id).import_messages(messages.messages, conversation=new.id, checked=True)
        if messages.waiting:
            await self._library.messages.import_waiting(new, messages.waiting)
        if copy.archived:
            await self._library.agent_of(agent_id).change_conversation(new.id, {"archived": True})
        return new.seq

    # --- tools

    async def _import_tool(self, file_id: str, tool: Mapping[str, Any]) -> None:
        """Find or make a tool of the file, whose id there is `file_id`, or leave it out with a warning."""
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            self.warnings.append("a tool without a name is left out")
            return
        here = await find_tool(self._library, name)
        try:
            if tool.get("tool_type", "custom") == "custom" and isinstance(tool.get("source_code"), str):
                here = await self._add_from_source(name, tool, here)
            elif here is not None and here.tool.spec.tool_type != tool.get("tool_type"):
                self.warnings.append(f"tool {name!r:.80} is left out: the one of this server is of another type")
                return
        except ValidationError as error:
            self.warnings.append(f"tool {name!r:.80} is left out: {_first_problem(error)}")
            return
        except InvalidInput as error:
            self.warnings.append(f"tool {name!r:.80} is left out: {error!s:.300}")
            return
        if here is None:
            self.warnings.append(f"tool {name!r:.80} is left out: this server has no such tool")
            return
        if tool.get("default_requires_approval") and not here.tool.spec.requires_approval:
            self.warnings.append(f"tool {name!r:.80} needs no approval here, as it does in the file")
        self._tools[file_id] = here.tool.id

    async def _add_from_source(self, name: str, tool: Mapping[str, Any], here: ToolState | None) -> ToolState:
        """Make a tool from its source in the file; return it, or `here`, the existing tool of its name. That one is not
        changed, or only when all else is done. Raises: InvalidInput, ValidationError."""
        new = ToolIn.model_validate(dict(tool))
        self._note_unset(f"tool {name!r:.80}", [key for key, value in (new.environment or {}).items() if not value])
        try:
            state = await self._library.tools.add(new.new(), fields=new.set_fields)
        except (AlreadyExists, ToolBuiltIn):
            if here is None:
                raise AgentFileInvalid("its source is of a tool that is here already") from None
            if self._options.override_tools and here.tool.spec.tool_type == "custom":
                self._replacements.append(new)
            else:
                self.warnings.append(f"tool {name!r:.80} was here already and stays as it is")
            return here
        if here is None:
            self._made_tools.append(state.tool.id)
        return state

    def _note_unset(self, owner: str, names: Collection[str]) -> None:
        """Note secrets that have no value here yet."""
        if names:
            self.warnings.append(f"{owner} lacks values of {', '.join(sorted(names))}, which no file holds")

    # --- agents

    def _name_of(self, agent: FileAgent) -> str:
        """The name that an agent of the file gets here."""
        suffix = _COPY if self._options.copy_suffix else ""
        name = NOT_IN_A_NAME.sub("_", self._options.name or str(agent.fields.get("name") or "Agent"))
        return name[: NAME_MAX - len(suffix)] + suffix

    def _agent_request(self, file_id: str, agent: FileAgent) -> AgentIn:
        """Build the request that makes an agent, with the tools and blocks made so far. Raises: AgentFileInvalid."""
        tool_ids = [id_ for id_ in agent.tool_ids if id_ in self._tools]
        body = agent.body | {
            "name": self._name_of(agent),
            "include_base_tools": False,
            "include_multi_agent_tools": False,
            "tool_rules": [*self._file.rules_of(agent, tool_ids)],
            "secrets": dict(self._options.secrets) or None,
            "block_ids": [self._blocks[id_] for id_ in agent.block_ids if id_ in self._blocks],
            "memory_blocks": [self._block(file_id, id_) for id_ in agent.block_ids if id_ not in self._blocks],
            "tool_ids": list(dict.fromkeys(self._tools[id_] for id_ in tool_ids)),
        }
        groups = (one for one in self._file.groups if one.manager.get("manager_agent_id") == file_id)
        body |= {"enable_sleeptime": True} if any(group.companions for group in groups) else {}
        body |= {"embedding": self._options.embedding} if self._options.embedding else {}
        body |= {"model": self._options.model} if self._options.model else {}
        try:
            return AgentIn.model_validate(body)
        except ValidationError as error:
            raise AgentFileInvalid(f"agent {body['name']!r} of the file: {_first_problem(error)}") from error

    def _block(self, file_id: str, block_id: str) -> dict[str, Any]:
        """A block with the first value it ever had: the later ones follow in order when the copy is restored."""
        block, copy = dict(self._file.blocks[block_id]), self._file.copies.get(file_id)
        values = () if copy is None else copy.block_values.get(str(block.get("label")), ())
        if values and values[-1].value == block.get("value"):  # else somebody edited the file: the history is not of it
            block["value"] = values[0].value
        return block

    async def _import_agent(self, file_id: str, agent: FileAgent) -> AgentId:
        """Make an agent of the file with its blocks and folders, without its messages; return its id."""
        models = self._library.handles
        request = self._agent_request(file_id, agent)
        secrets = agent.fields.get("secrets") or agent.fields.get("tool_exec_environment_variables")
        if isinstance(secrets, dict):
            self._note_unset(f"agent {request.name!r:.80}", secrets.keys() - self._options.secrets.keys())
        handle = request.model_handle
        copy = self._file.copies.get(file_id)
        follows = copy is not None and copy.follows_default and not self._options.model
        try:
            model = await models.resolve(None if follows else handle)
        except ModelNotFound as error:
            if self._options.model:
                raise InvalidInput(f"model: {error}") from error
            self.warnings.append(f"agent {request.name!r} follows the default model: {handle!r:.200} is not here")
            handle, model = None, await models.resolve(None)
        made = await self._library.all_agents.add(
            request.new_agent(request.name or "", model, follows_default=follows or models.means_default(handle)),
            belongings=request.belongings,
            companion=request.companion(request.agent_type) or None,
        )
        self._agents[file_id] = made.id
        by_label = {block.label: block.id for block in (await self._library.agent_of(made.id).state()).blocks}
        for id_ in agent.block_ids:
            self._blocks.setdefault(id_, by_label[str(self._file.blocks[id_]["label"])])
        for id_ in agent.folder_ids:
            if id_ not in self._folders:
                made_folder = await create_folder(self._library, self._file.folders[id_])
                self._folders[id_] = made_folder.id
                await add_files(made_folder, self._file.folders[id_], self.warnings)
            await self._library.agent_of(made.id).files.attach(self._folders[id_])
        return made.id

    # --- groups

    async def _import_group(self, group: FileGroup) -> None:
        """Make a group of agents that were made, or change an agent's companion, or leave it out with a warning."""
        if not IMPORT_GROUP.functions:
            self.warnings.append("a group is left out: this program lacks its feature `groups`")
            return
        manager = dict(group.manager)
        manager_id = self._agents.get(manager.pop("manager_agent_id", ""))
        manager |= {"manager_agent_id": manager_id} if manager_id else {}
        body = {
            "agent_ids": [self._agents[id_] for id_ in group.agent_ids if id_ in self._agents],
            "description": group.description,
            "shared_block_ids": [self._blocks[id_] for id_ in group.block_ids if id_ in self._blocks],
        }
        try:
            for import_group in IMPORT_GROUP(self._library, body, manager, bool(group.companions)):
                self._group_deletes += filter(None, [await import_group])
        except ValidationError as error:
            self.warnings.append(f"a group is left out: {_first_problem(error)}")
        except (InvalidInput, NotSupported, AlreadyExists, TooMany) as error:
            self.warnings.append(f"a group is left out: {error!s:.300}")


async def find_tool(library: AsyncPerdure, name: str) -> ToolState | None:
    """The tool of this name; None: there is none."""
    try:
        state = await library.tools.state(name)
    except (NotFound, InvalidInput):
        return None
    return state if state.tool.spec.name == name else None  # an id is no name


def _first_problem(error: ValidationError) -> str:
    """Where the first problem is, such as `tools.0.name`, and what it is."""
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']:.300}"
