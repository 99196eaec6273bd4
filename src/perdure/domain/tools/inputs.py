"""A unit of work: load what a custom tool is run with."""

from __future__ import annotations

from perdure.core.ids import AgentId, ToolId
from perdure.core.secrets import Cipher
from perdure.core.tools.spec import ToolInputs
from perdure.domain.secrets import resolve_environment, secret_names
from perdure.domain.tools.environment import open_environment
from perdure.storage.tx import Tx


def load_inputs(tx: Tx, tool_id: ToolId, agent_id: AgentId, *, cipher: Cipher) -> ToolInputs:
    """The inputs of a call of this tool by this agent. Raises: NotFound, SecretKeyMissing, SecretUnreadable."""
    code = tx.tools.code(tool_id)
    values = open_environment(tx, tool_id, code, cipher=cipher) if code else {}
    environment = resolve_environment(tx, agent_id, values, cipher=cipher)
    secrets = secret_names(tx, agent_id, code) if code else {}
    blocks = tx.blocks.of_agent(agent_id) if code is not None and code.takes_agent else ()
    return ToolInputs(code, environment, secrets, tx.agents.get(agent_id), blocks)
