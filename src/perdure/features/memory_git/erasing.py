"""What becomes of the commits when a text is erased, and the reasons that pushes gave for versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.ids import AgentId, BlockId
from perdure.engine.ports import Ports
from perdure.features.memory_git.tables import MemoryGit
from perdure.storage.tx import Tx


async def drop_history(ports: Ports, table: str, owner_id: str) -> None:
    """Drop all commits of an agent from which a text was erased: they hold it. The next reader makes new ones."""
    if table == "memory_files":
        await ports.store.write(lambda tx: tx.of(MemoryGit).drop(AgentId(owner_id)))


def version_reasons(tx: Tx, block_id: BlockId, versions: Sequence[int]) -> Mapping[int, str]:
    """Version of a block -> the message of the commit by which a push wrote it."""
    return tx.of(MemoryGit).reasons(block_id, versions)
