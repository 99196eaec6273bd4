"""The calls that wait for a person, of all agents."""

from __future__ import annotations

from starlette.requests import Request

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import require_scope
from perdure.ui.pages.chat import send_to
from perdure.ui.pages.tool_forms import approval_shape, decision_of
from perdure.ui.render import Data, Notice, Pages, field_of, form_of

pages = Pages()


@pages.get("/approvals", "approvals.html", is_live=True)
async def approvals(request: Request, library: AsyncPerdure) -> Data:
    """The calls that wait, those of clients left out."""
    waiting = await library.approvals.list_all()
    calls = [await approval_shape(library, call) | {"agent": name} for name, call in waiting if not call.awaits_client]
    return {"title": "Approvals", "pending": calls}


@pages.post("/approvals", shows=approvals)
async def decide(request: Request, library: AsyncPerdure) -> Notice:
    """Approve a call (maybe with other arguments), deny it, or allow all later ones of its tool; `ask` undoes that."""
    form = await form_of(request)
    agent = library.agent_of(AgentId(field_of(form, "agent_id")))
    conversation_id = ConversationId(field_of(form, "conversation_id"))
    choice, call_id = field_of(form, "choice"), field_of(form, "call_id")
    if choice == "ask":
        require_scope(request, "builder", what="changing which tools need approval")
        await agent.require_approval(field_of(form, "tool"))
        return Notice(f"{form['tool']} needs approval again.")
    tool = ""
    if choice == "always":
        require_scope(request, "builder", what="approving all later calls of a tool")
        waiting = await agent.pending(conversation=conversation_id)
        tool = next((call.name for call in waiting if call.call_id == call_id), "")
        if not tool:
            raise NotFound("call that waits", call_id)
    decision = await decision_of(library, agent, conversation_id, form, approves=choice != "deny")
    await send_to(agent, conversation_id, decision)
    undo: Data = {}
    if tool:  # only now: what refuses the decision must leave the rule as it is
        await agent.require_approval(tool, required=False)
        fields = {"agent_id": agent.id, "conversation_id": conversation_id, "call_id": call_id, "tool": tool}
        undo = {"undo": "/approvals", "fields": fields | {"choice": "ask"}}
    texts = {"deny": "The call was denied.", "always": f"Approved; {tool} needs no approval of this agent any more."}
    return Notice(texts.get(choice, "The call was approved."), **undo)
