"""What every store promises, as tests that any backend runs.

    class TestMyStore(StoreContract):
        async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
            return await MyStore.open(self.place, at=START, org_id=org_id)

Plain classes and plain asserts: any runner that makes a new object per test and awaits coroutine tests will do. With
pytest, `pytest.register_assert_rewrite("perdure.testing")` makes a failing assert show its values.
"""

from __future__ import annotations

from perdure.testing.store_contract.agents import AgentContract
from perdure.testing.store_contract.answers import AnswerContract
from perdure.testing.store_contract.blocks import BlockContract
from perdure.testing.store_contract.captures import CaptureContract
from perdure.testing.store_contract.conversations import ConversationContract
from perdure.testing.store_contract.deletes import DeleteContract
from perdure.testing.store_contract.events import EventContract
from perdure.testing.store_contract.folders import FolderContract
from perdure.testing.store_contract.isolation import IsolationContract
from perdure.testing.store_contract.mcp import McpContract
from perdure.testing.store_contract.message_ids import MessageIdContract
from perdure.testing.store_contract.messages import MessageContract
from perdure.testing.store_contract.nodes import NodeContract
from perdure.testing.store_contract.passages import PassageContract
from perdure.testing.store_contract.races import RaceContract
from perdure.testing.store_contract.resets import ResetContract
from perdure.testing.store_contract.revisions import RevisionContract
from perdure.testing.store_contract.runs import RunContract
from perdure.testing.store_contract.secrets import SecretContract
from perdure.testing.store_contract.steps import StepContract
from perdure.testing.store_contract.tools import ToolContract
from perdure.testing.store_contract.units import UnitContract
from perdure.testing.store_contract.upkeep import UpkeepContract
from perdure.testing.store_contract.vectors import VectorContract

__all__ = ["StoreContract"]


class StoreContract(
    AgentContract,
    AnswerContract,
    BlockContract,
    CaptureContract,
    ConversationContract,
    DeleteContract,
    EventContract,
    FolderContract,
    IsolationContract,
    McpContract,
    MessageContract,
    MessageIdContract,
    NodeContract,
    PassageContract,
    RaceContract,
    ResetContract,
    RevisionContract,
    RunContract,
    SecretContract,
    StepContract,
    ToolContract,
    UnitContract,
    UpkeepContract,
    VectorContract,
):
    """All of it. Implement `open`."""
