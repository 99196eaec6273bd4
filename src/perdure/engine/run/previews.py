"""What a call that waits for a person would change in memory, before they decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from perdure.core.blocks import MemoryEdit
from perdure.core.errors import PerdureError
from perdure.core.tools.answers import PendingCall
from perdure.core.tools.arguments import parse_arguments
from perdure.domain.tools.calls import MemoryCall
from perdure.domain.tools.memory_tools import MEMORY_TOOLS
from perdure.engine.approvals.answers import tools_of
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.tool_calls import REFUSALS
from perdure.storage.tx import Tx


class _Preview(PerdureError):
    """Raised to end a preview's transaction without a commit; carries the edits out of it."""

    def __init__(self, edits: Sequence[MemoryEdit]) -> None:
        super().__init__("the edits of a preview are not kept")
        self.edits = edits


async def preview_edits(pending: PendingCall, ports: Ports) -> Sequence[MemoryEdit]:
    """Return the changes of blocks that a call would make if it ran now; nothing is kept. None of a tool that edits no
    block, and of a call that its tool would refuse. Raises: StoreError."""
    if pending.name not in MEMORY_TOOLS:
        return ()
    try:
        await ports.store.write(_run, pending, ports.inputs())
    except _Preview as preview:
        return preview.edits
    except REFUSALS:
        return ()


def _run(tx: Tx, pending: PendingCall, inputs: UnitInputs) -> NoReturn:
    """Run a call of a memory tool. Raises: _Preview, with its edits; REFUSALS."""
    run = tx.runs.get(pending.run_id)
    tool = tools_of(tx, run, own_names=(pending.name,)).get(pending.name)
    if tool is None or tool.spec.kind != "memory":
        raise _Preview(())
    agent = tx.conversations.get_agent(run.key.agent_id, run.conversation_seq)
    arguments = parse_arguments(pending.name, tool.spec.parameters, pending.call.own_arguments)
    call = MemoryCall(agent=agent, run=run, message_id=pending.message_id, now=inputs.now, ids=inputs.ids)
    raise _Preview(MEMORY_TOOLS[pending.name](tx, call, **arguments).edits)
