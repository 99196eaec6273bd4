"""What every store promises, as tests that any backend runs.

    class TestMyStore(StoreContract):
        async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
            return await MyStore.open(self.place, at=START, org_id=org_id)

Plain classes and plain asserts: any runner that makes a new object per test and awaits coroutine tests will do. With
pytest, `pytest.register_assert_rewrite("perdure.testing")` makes a failing assert show its values.
"""

from __future__ import annotations

from tests.contracts.access import AccessContract
from tests.contracts.agents import AgentContract
from tests.contracts.answers import AnswerContract
from tests.contracts.batches import BatchContract
from tests.contracts.blocks import BlockContract
from tests.contracts.callbacks import CallbackContract
from tests.contracts.captures import CaptureContract
from tests.contracts.conversations import ConversationContract
from tests.contracts.deletes import DeleteContract
from tests.contracts.events import EventContract
from tests.contracts.facts import FactContract
from tests.contracts.folders import FolderContract
from tests.contracts.forgetting import ForgettingContract
from tests.contracts.groups import GroupContract
from tests.contracts.identities import IdentityContract
from tests.contracts.isolation import IsolationContract
from tests.contracts.mcp import McpContract
from tests.contracts.message_ids import MessageIdContract
from tests.contracts.messages import MessageContract
from tests.contracts.names import NameContract
from tests.contracts.nodes import NodeContract
from tests.contracts.passages import PassageContract
from tests.contracts.passes import PassContract
from tests.contracts.plans import PlanContract
from tests.contracts.providers import ProviderContract
from tests.contracts.queues import QueueContract
from tests.contracts.races import RaceContract
from tests.contracts.resets import ResetContract
from tests.contracts.revisions import RevisionContract
from tests.contracts.runs import RunContract
from tests.contracts.sandbox import SandboxContract
from tests.contracts.schedules import ScheduleContract
from tests.contracts.secrets import SecretContract
from tests.contracts.sources import SourceContract
from tests.contracts.steps import StepContract
from tests.contracts.tools import ToolContract
from tests.contracts.units import UnitContract
from tests.contracts.upkeep import UpkeepContract
from tests.contracts.vectors import VectorContract

__all__ = ["StoreContract"]


class StoreContract(
    AccessContract,
    AgentContract,
    AnswerContract,
    BatchContract,
    BlockContract,
    CallbackContract,
    CaptureContract,
    ConversationContract,
    DeleteContract,
    EventContract,
    FactContract,
    FolderContract,
    ForgettingContract,
    GroupContract,
    IdentityContract,
    IsolationContract,
    McpContract,
    MessageContract,
    MessageIdContract,
    NameContract,
    NodeContract,
    PassageContract,
    PassContract,
    PlanContract,
    ProviderContract,
    QueueContract,
    RaceContract,
    ResetContract,
    RevisionContract,
    RunContract,
    SandboxContract,
    ScheduleContract,
    SecretContract,
    SourceContract,
    StepContract,
    ToolContract,
    UnitContract,
    UpkeepContract,
    VectorContract,
):
    """All of it. Implement `open`."""
