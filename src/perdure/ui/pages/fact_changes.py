"""What a person changes about facts: the facts themselves, what is captured, and what must not be remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import get_args

from starlette.requests import Request

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput
from perdure.core.facts.values import FactState
from perdure.core.ids import FactId, PassageId
from perdure.core.text.reprs import plural
from perdure.domain.agents.units import AgentChanges
from perdure.domain.facts.graphs import FactFields
from perdure.domain.facts.profile import TEXT_RELATION
from perdure.domain.facts.settings import FACT_SETTINGS, load_agent_facts
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.facts.facts import NewFactFields
from perdure.search.query import parse_time
from perdure.ui.pages.facts import FACTS_MAX, as_relation, facts
from perdure.ui.render import Notice, Pages, agent_id_of, date_of, field_of, form_of

MODES: Mapping[str, str] = {
    "on": "Facts are remembered as they are said.",
    "ask": "New facts wait as proposals until you accept them.",
    "off": "Nothing that is said becomes a fact from now on.",
}
STATE_NOTICES: Mapping[FactState, str] = {
    "active": "The agent now knows {}.",
    "faded": "{} faded as before.",
    "proposed": "{} wait as before.",
    "archived": "{} faded as before.",
}
NUMBER_DIGITS = 12

pages = Pages()


@pages.post("/agents/{agent_id}/facts", shows=facts)
async def add_fact(request: Request, library: AsyncPerdure) -> Notice:
    """Add a fact by hand."""
    form = await form_of(request)
    since, until = parse_time(form.get("since")), parse_time(form.get("until"))
    times: NewFactFields = {} if since is None and until is None else {"valid_at": since, "invalid_at": until}
    hit = await library.services.facts.add(
        agent_id_of(request),
        field_of(form, "text"),
        subject=form.get("subject", ""),
        relation=as_relation(form.get("relation", "")) or "REMEMBERS",
        object_=form.get("object", ""),
        **times,
    )
    return _notice(request, "The fact was added.", "selected", choice="forget", fact=hit.fact.id)


@pages.post("/agents/{agent_id}/facts/selected", shows=facts)
async def change_selected(request: Request, library: AsyncPerdure) -> Notice:
    """Forget facts, bring them back, or give them a state; `fact` has one id, or several with spaces between them."""
    form, service = await request.form(), library.services.facts
    named = [word for value in form.getlist("fact") if isinstance(value, str) for word in value.split()]
    ids = [FactId(one) for one in dict.fromkeys(named)]
    if not ids:
        raise InvalidInput("no fact is selected: tick the boxes beside those that you mean")
    if len(ids) > FACTS_MAX:
        raise InvalidInput(f"{len(ids)} facts are selected: {FACTS_MAX} at once is the limit")
    choice = form.get("choice")
    if choice == "forget":
        forgotten = await service.delete(ids)
        return _notice(request, f"Forgotten: {plural(len(forgotten), 'fact')}.", "selected", choice="restore", fact=ids)
    if choice == "restore":
        for fact_id in ids:
            await service.restore(fact_id)
        return Notice(f"The agent knows {plural(len(ids), 'fact')} again.")
    for state in get_args(FactState):
        if choice == state:
            before = (await service.get(ids[0])).fact.state
            for fact_id in ids:
                await service.update(fact_id, {"state": state})
            text = STATE_NOTICES[state].format(plural(len(ids), "fact"))
            return _notice(request, text, "selected", choice=before, fact=ids)
    raise InvalidInput(f"choice is {str(choice)!r:.40}: use forget, restore, or a state of facts")


@pages.post("/agents/{agent_id}/facts/passages", shows=facts)
async def restore_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Bring a passage back that has faded."""
    passage_id = PassageId(field_of(await form_of(request), "passage"))
    await library.services.passages.restore(passage_id, agent_id_of(request))
    return Notice("The agent recalls the text again.")


@pages.post("/agents/{agent_id}/facts/never", shows=facts)
async def never_again(request: Request, library: AsyncPerdure) -> Notice:
    """Forget a fact, and add the rule that keeps it from being extracted again."""
    agent_id, service = agent_id_of(request), library.services.facts
    fact_id = FactId(field_of(await form_of(request), "fact"))
    hit = await service.get(fact_id)
    by_text = hit.fact.relation == TEXT_RELATION
    rule = await service.add_rule(
        agent_id,
        text=hit.fact.text if by_text else hit.object.name,
        relation=None if by_text else hit.fact.relation,
    )
    await service.delete([fact_id])
    said = f"“{rule.text}”" if by_text else f"{rule.relation} with “{rule.text}”"
    text = f"Forgotten, and a rule keeps it so: nothing that says {said} becomes a fact again."
    return _notice(request, text, "rules", str(rule.seq), "delete", fact=fact_id)


@pages.post("/agents/{agent_id}/facts/rules", shows=facts)
async def add_rule(request: Request, library: AsyncPerdure) -> Notice:
    """Say what must not be remembered."""
    form = await form_of(request)
    relation = as_relation(form.get("relation", "")) or None
    rule = await library.services.facts.add_rule(
        agent_id_of(request),
        text=form.get("text", ""),
        relation=relation,
        entity=form.get("entity", "").strip() or None,
    )
    return _notice(request, "The rule holds from now on.", "rules", str(rule.seq), "delete")


@pages.post("/agents/{agent_id}/facts/rules/{number}/delete", shows=facts)
async def delete_rule(request: Request, library: AsyncPerdure) -> Notice:
    """Lift a rule; with `fact` also bring back the fact that was forgotten with it."""
    agent_id, number, service = agent_id_of(request), request.path_params["number"], library.services.facts
    if not number.isdecimal() or len(number) > NUMBER_DIGITS:
        raise InvalidInput(f"{number!r:.40} is no rule's number")
    rule = next((one for one in await service.list_rules(agent_id) if one.seq == int(number)), None)
    await service.delete_rule(agent_id, int(number))
    fact = (await form_of(request)).get("fact")
    if fact:
        await service.restore(FactId(fact))
    if rule is None or fact:
        return Notice("The rule is lifted, and the fact is back.")
    named = {"text": rule.text, "relation": rule.relation or "", "entity": rule.entity_name}
    return _notice(request, "The rule is lifted.", "rules", **named)


@pages.post("/agents/{agent_id}/facts/capture", shows=facts)
async def set_capture(request: Request, library: AsyncPerdure) -> Notice:
    """Choose whether facts are captured: on, ask or off."""
    agent_id, mode = agent_id_of(request), (await form_of(request)).get("mode", "")
    agent = await library.services.agents.resolve(agent_id)

    def change(before: Agent) -> AgentChanges:
        value = before.settings.get(FACT_SETTINGS)
        fields = value if isinstance(value, Mapping) else {}
        return {"settings": {**before.settings, FACT_SETTINGS: {**fields, "capture": mode}}}

    await library.services.agents.update(agent_id, change)
    return _notice(request, MODES[mode], "capture", mode=load_agent_facts(agent.settings).capture)


@pages.post("/agents/{agent_id}/facts/pause", shows=facts)
async def pause(request: Request, library: AsyncPerdure) -> Notice:
    """Let extraction wait, or go on."""
    paused = (await form_of(request)).get("paused") == "yes"
    await library.services.facts.update_settings(agent_id_of(request), {"paused": paused})
    text = "Extraction waits. What is said meanwhile is read when you resume." if paused else "Extraction goes on."
    return _notice(request, text, "pause", paused="" if paused else "yes")


@pages.post("/agents/{agent_id}/facts/{fact_id}", shows=facts)
async def edit_fact(request: Request, library: AsyncPerdure) -> Notice:
    """Correct the sentence of a fact, and the days from and until which it was true."""
    form, service = await form_of(request), library.services.facts
    fact = (await service.get(FactId(request.path_params["fact_id"]))).fact
    changes: FactFields = {"text": field_of(form, "text")}
    if _changes(form, "since", fact.valid_at):
        changes["valid_at"] = parse_time(form["since"])
    if _changes(form, "until", fact.invalid_at):
        changes["invalid_at"] = parse_time(form["until"])
    await service.update(fact.id, changes)
    times = {"since": fact.valid_at, "until": fact.invalid_at}
    before = {name: "" if at is None else at.isoformat() for name, at in times.items()}
    return _notice(
        request, "The fact was corrected; the version before stays in its history.", fact.id, text=fact.text, **before
    )


def _changes(form: Mapping[str, str], name: str, before: datetime | None) -> bool:
    """Whether a form has another day than the one that it was filled with; a day that stays keeps its time."""
    return name in form and form[name].strip() != date_of(before)


def _notice(request: Request, text: str, /, *action: str, **fields: str | Sequence[str]) -> Notice:
    """What an action did, and the action that takes it back, with the filters of the page."""
    path = "/".join((f"/agents/{agent_id_of(request)}/facts", *action))
    values = {name: value if isinstance(value, str) else " ".join(value) for name, value in fields.items()}
    return Notice(text, undo=f"{path}?{request.query_params}", fields=values)
