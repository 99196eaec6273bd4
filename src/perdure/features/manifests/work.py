"""What a manifest is applied with, and what each kind of things has to know for it. In one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, BlockId
from perdure.domain.corrections import MEMORY_CORRECTED
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.manifests.values import KINDS, ManifestObject, ThingKind, flatten
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyWork:
    """One application of a manifest.

    Args:
        ids_of: (kind, name in the file) -> the id of the thing, of those that are there already.
        default_model: what agents get that name no model.
        private: name of an MCP server -> whether its url leads into a private network; None: that is not known.
        touched: the agents whose memory has changed.
        waiting: the MCP servers whose tools agents are to have, and that were never read.
    """

    tx: Tx
    ports: Ports
    inputs: UnitInputs
    author: Author
    default_model: str
    private: Mapping[str, bool] = field(default_factory=dict)
    ids_of: dict[tuple[str, str], str] = field(default_factory=dict)
    touched: set[AgentId] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    def new_id(self, kind: str) -> Any:
        """A new id of a kind of things."""
        return self.ports.ids.new(kind)

    def name_of(self, kind: ThingKind, id_: str, otherwise: str) -> str:
        """Return the name that the files give to the thing with this id, else `otherwise`."""
        return next((name for (of, name), one in self.ids_of.items() if of == kind and one == id_), otherwise)

    def agent_name(self, agent_id: AgentId) -> str:
        """The name of an agent in the files, or its own. Raises: NotFound."""
        return self.name_of("agents", agent_id, self.tx.agents.get(agent_id).name)

    def touch(self, *agents: AgentId) -> None:
        """Note agents whose prompt has to be made anew."""
        self.touched.update(agents)

    def touch_owners(self, table: str, id_: str) -> None:
        """Note the agents that have this block or archive."""
        self.touch(*self.tx.owners.list_agents(table, id_))

    def finish(self) -> None:
        """Make the prompts of the noted agents anew."""
        for agent_id in sorted(self.touched):
            with suppress(NotFound):
                renew_system_message(self.tx, agent_id, 0, self.inputs)
                MEMORY_CORRECTED(self.tx, agent_id)

    def agent(self, thing: ManifestObject, path: str, name: str) -> AgentId:
        """The id of an agent of this name, of the files or the store. Raises: InvalidInput."""
        if found := self.ids_of.get(("agents", name)):
            return AgentId(found)
        agent = self.tx.agents.find_by_name(name)
        if agent is None:
            raise InvalidInput(
                f"{thing.place(path)}: there is no agent {name!r}, neither in the files nor in the store"
            )
        return agent.id

    def blocks(self, thing: ManifestObject) -> Sequence[BlockId]:
        """The ids of the shared blocks that a thing names."""
        return [BlockId(self.ids_of["blocks", name]) for name in thing.fields.get("shared_blocks", ())]


class Kind(ABC):
    """What can be done with things of one kind. By default one that goes out of use is detached from agents."""

    def find(self, work: ApplyWork, thing: ManifestObject) -> str | None:
        """Return the id of the stored object that a file describes; None: it is new. Raises: InvalidInput."""
        id_ = thing.fields.get("id")
        return id_ if id_ is not None and self.fields(work, id_) is not None else None

    def fields(self, work: ApplyWork, id_: str) -> dict[str, Any] | None:
        """Path -> value of the fields of a thing; None: it is gone."""
        with suppress(NotFound):
            return flatten(self.describe(work, id_))
        return None

    @abstractmethod
    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        """The fields of a thing as a file has them. Raises: NotFound."""

    @abstractmethod
    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        """Make a thing, and return its id."""

    @abstractmethod
    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Give a thing the fields of a file, of which these paths differ; return its id."""

    @abstractmethod
    def remove(self, work: ApplyWork, id_: str) -> str:
        """Take a thing out of use, and return in words what happened to it."""

    def is_removed(self, work: ApplyWork, id_: str) -> bool:
        """Whether a thing was taken out of use, and can be taken back."""
        return False

    def restore(self, work: ApplyWork, id_: str) -> None:  # noqa: B027  # most kinds have nothing to take back
        """Take a thing back that was taken out of use."""


def only_id(kind: ThingKind, name: str, found: Sequence[Any]) -> Any:
    """Return the id of the only_id thing found by its name; None: nothing was found. Raises: InvalidInput: several."""
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise InvalidInput(f"several {KINDS[kind]}s have the name {name!r}: give the `id` of one, such as {ids}")
    return found[0].id if found else None
