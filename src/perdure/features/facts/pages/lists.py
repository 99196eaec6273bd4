"""Facts: what an agent knows as sentences, with the times at which they were true and where they come from; the profile
of a user, and when facts began and ended. A person changes the facts themselves, what is captured, and what must not be
remembered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, get_args
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, EntityId, FactId, PassageId, is_id
from perdure.core.passages import PassageFilter
from perdure.core.text.reprs import attributes, plural
from perdure.core.text.tables import read_table
from perdure.core.text.zones import local, zone
from perdure.domain.agents.units import AgentChanges
from perdure.features.facts.service import NewFactFields
from perdure.features.facts.units.profile import TEXT_RELATION
from perdure.features.facts.values.facts import KNOWN_STATES, Fact, FactEvent, FactHit, FactRule, FactState
from perdure.features.facts.values.settings import FACT_SETTINGS, load_agent_facts, load_graph_settings
from perdure.features.facts.views import FactConditions
from perdure.library.memory.search import period
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.search.ranking.hits import Why
from perdure.search.ranking.query import parse_time
from perdure.ui.conflicts import changed_fields
from perdure.ui.pages.home import agent_frame
from perdure.ui.render import Data, Notice, Pages, agent_id_of, date_of, field_of, form_of, is_number

FACTS_MAX, ABOUT_MAX = 50, 8
TEXT_CHARS = 300
"""How much of a faded passage is shown."""
SHOWN_SCORE = 0.005
"""Smaller parts of a score are shown as zero."""
STATES: Mapping[str, str] = {
    "": "All",
    "current": "True now",
    "past": "Past",
    "proposed": "Proposed",
    "archived": "Faded",
}
"""Which facts are shown -> its name on the page; without one, all that are believed."""
FILTERS = ("q", "state", "entity", "relation", "at", "as_of")
SIGNALS: Mapping[str, str] = read_table(__file__, "signals.toml")
"""A part of a score -> what it stands for."""

pages = Pages()


async def watch_graph(library: AsyncPerdure, agent_id: AgentId) -> Sequence[tuple[str, int]]:
    """The agent's graph with its version, by which an open page sees changes; empty: it has none."""
    graph = await library.agent_of(agent_id).facts.find_graph()
    return [] if graph is None else [(graph.id, graph.version)]


@pages.get("/agents/{agent_id}/facts", "facts/list.html", is_live=True)
async def facts(request: Request, library: AsyncPerdure) -> Data:
    """A page of the facts that meet the conditions, newest first, or with `q` the best that a search finds."""
    agent_id, query = agent_id_of(request), request.query_params
    agent = await library.all_agents.resolve(agent_id)
    graph = await library.agent_of(agent_id).facts.find_graph()
    now, search, problem = library.app.ports.clock.now(), query.get("q", "").strip(), None
    hits, about = list[FactHit](), query.get("entity", "").strip()
    try:
        where = _conditions(query, now, agent.timezone)
        if is_id("entity", about):
            about = (await library.facts.get_entity(EntityId(about))).name
        if search:
            hits = list(await library.agent_of(agent_id).facts.search(search, limit=FACTS_MAX, explain=True, **where))
        else:
            page = Page(FACTS_MAX, ascending=False, after=query.get("after"))
            hits = list(await library.agent_of(agent_id).facts.page(page, **where))
    except NotFound:
        problem = f"No facts are about “{about}”."
    except InvalidInput as error:
        problem = str(error)
    used = {name: query[name] for name in FILTERS if query.get(name, "").strip()}
    last = hits[-1].fact.id if len(hits) == FACTS_MAX and not search else None
    settings = load_agent_facts(agent.settings)
    paused = load_graph_settings({} if graph is None else graph.settings).paused
    by = library.app.settings.facts if settings.extractor == "default" else settings.extractor
    return facts_frame(agent, "list") | {
        "facts": [localize(fact_shape(hit, now), agent) | {"was": fields_of(hit.fact, agent)} for hit in hits],
        "problem": problem,
        "filters": {name: used.get(name, "") for name in FILTERS},
        "states": [
            {"name": name, "label": label, "query": urlencode({**used, "state": name})}
            for name, label in STATES.items()
        ],
        "entity": about,
        "about": _subjects(hits),
        "more": None if last is None else urlencode({**used, "after": last}),
        "capture": {"mode": settings.capture, "paused": paused, "extractor": by},
        "passages": await _faded_passages(library, agent) if query.get("state") == "archived" else [],
        "rules": [rule_shape(rule) for rule in await library.agent_of(agent_id).facts.rules()],
    }


async def _faded_passages(library: AsyncPerdure, agent: Agent) -> list[Data]:
    """The agent's newest passages that have faded or are archived."""
    where, page = PassageFilter(states=("faded", "archived")), Page(FACTS_MAX, ascending=False)
    found = await library.agent_of(agent.id).list_passages(page, where=where)
    shapes = [attributes(one, "id", "state", at="occurred_at") | {"text": one.text[:TEXT_CHARS]} for one in found]
    return [localize(shape, agent) for shape in shapes]


def localize(shape: Data, agent: Agent) -> Data:
    """A shape with its times in the agent's time zone."""
    tz = zone(agent.timezone)
    return {name: local(value, tz) if isinstance(value, datetime) else value for name, value in shape.items()}


def facts_frame(agent: Agent, view: str) -> Data:
    """The data that all pages of facts share; `view`: the tab that is shown, such as `list`."""
    return agent_frame(agent, "Facts", "facts") | {"view": view}


def _conditions(query: QueryParams, now: datetime, timezone: str) -> FactConditions:
    """The conditions that the filters of the page say; `now` decides what is true now. Raises: InvalidInput."""
    state = query.get("state", "")
    if state not in STATES:
        raise InvalidInput(f"state is {state!r:.40}: choose one of {', '.join(filter(None, STATES))}")
    relation = as_relation(query.get("relation", ""))
    where = FactConditions(
        entity=query.get("entity", "").strip() or None,
        relations=(relation,) if relation else (),
        at=parse_time("at", query.get("at"), timezone=timezone),
        as_of=parse_time("as_of", query.get("as_of"), timezone=timezone, end=True),
        states=KNOWN_STATES,
    )
    if state == "current" and where["at"] is None:
        where["at"] = where["as_of"] or now
    elif state == "past":
        where["ended_at"] = where["as_of"] or now
    elif state in ("proposed", "archived"):
        where["states"] = ("proposed",) if state == "proposed" else ("archived",)
    return where


def as_relation(text: str) -> str:
    """A relation as a person writes it, in the form that facts have: "lives in" is LIVES_IN."""
    return "_".join(text.upper().split())


def fact_shape(hit: FactHit, now: datetime) -> Data:
    """A fact with its entities, its times, and why a search found it."""
    own = (
        "id",
        "seq",
        "text",
        "relation",
        "type",
        "rating",
        "valid_at",
        "invalid_at",
        "created_at",
        "expired_at",
        "trust",
    )
    ends = {"subject": "subject.name", "subject_id": "subject.id", "object": "object.name", "object_id": "object.id"}
    return {
        **attributes(hit.fact, *own),
        **attributes(hit, **ends),
        "state": _state(hit.fact, now),
        "author": hit.fact.origin.get("type", "extraction"),
        "score": None if hit.why is None else hit.score,
        "why": [] if hit.why is None else _reasons(hit.why),
    }


def _state(fact: Fact, now: datetime) -> str:
    """What a fact is now, in a word: `replaced`, `current`, `past`, `future`, or its state if it is not known."""
    if fact.expired_at is not None:
        return "replaced"
    if fact.state not in KNOWN_STATES:
        return fact.state
    if fact.is_true_at(now):
        return "current"
    return "past" if fact.invalid_at is not None and fact.invalid_at <= now else "future"


def _reasons(why: Why) -> list[Data]:
    """The parts of a score, each with words for people, the largest first."""
    parts = sorted(why.parts.items(), key=lambda part: -abs(part[1]))
    return [
        {"name": SIGNALS.get(name, name.replace("_", " ")), "score": score}
        for name, score in parts
        if abs(score) >= SHOWN_SCORE
    ]


def _subjects(hits: list[FactHit]) -> list[Data]:
    """The subjects of the facts on the page, those of most facts first."""
    names = {hit.subject.id: hit.subject.name for hit in hits}
    counts = Counter(hit.subject.id for hit in hits)
    return [{"id": one, "name": names[one]} for one, _ in counts.most_common(ABOUT_MAX)]


def rule_shape(rule: FactRule) -> Data:
    """A rule about what must not be remembered, as the page shows it."""
    shape = {"number": rule.seq, "text": rule.text, "relation": rule.relation, "entity": rule.entity_name or None}
    return shape | {"at": rule.created_at}


EVENTS_MAX = 100


@pages.get("/agents/{agent_id}/facts/timeline", "facts/timeline.html", is_live=True)
async def timeline(request: Request, library: AsyncPerdure) -> Data:
    """When facts began and ceased to be true, newest first, from `since` until `until`, about `entity` or all."""
    agent_id, query = agent_id_of(request), request.query_params
    agent = await library.all_agents.resolve(agent_id)
    entity, problem = query.get("entity", "").strip(), None
    events: Sequence[FactEvent] = ()
    try:
        events = await library.agent_of(agent_id).facts.timeline(
            *period(query.get("since"), query.get("until"), agent.timezone),
            limit=EVENTS_MAX + 1,
            newest_first=True,
            entity=entity or None,
        )
    except NotFound:
        problem = f"No facts are about “{entity}”."
    except InvalidInput as error:
        problem = str(error)
    older = None
    if len(events) > EVENTS_MAX:
        # The next page begins with all events of one moment, so that none of them is left out between the two.
        last = events[-1].at
        events = [event for event in events if event.at != last] or events
        older = last + timedelta(microseconds=events[-1].at != last)
    own = {"fact_id": "fact.id", "text": "fact.text"}
    return facts_frame(agent, "timeline") | {
        "events": [localize(attributes(one, "at", "kind", "tags", **own), agent) for one in events],
        "filters": {name: query.get(name, "") for name in ("since", "until", "entity")},
        "problem": problem,
        "older": None if older is None else older.isoformat(),
    }


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


@pages.post("/agents/{agent_id}/facts", shows=facts)
async def add_fact(request: Request, library: AsyncPerdure) -> Notice:
    """Add a fact by hand."""
    form = await form_of(request)
    home = await library.facts.of(agent_id_of(request)).timezone()
    since, until = (parse_time(name, form.get(name), timezone=home) for name in ("since", "until"))
    times: NewFactFields = {} if since is None and until is None else {"valid_at": since, "invalid_at": until}
    hit = await library.facts.of(agent_id_of(request)).add_fact(
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
    form, known = await request.form(), library.facts
    named = [word for value in form.getlist("fact") if isinstance(value, str) for word in value.split()]
    ids = [FactId(name) for name in dict.fromkeys(named)]
    if not ids:
        raise InvalidInput("no fact is selected: tick the boxes beside those that you mean")
    if len(ids) > FACTS_MAX:
        raise InvalidInput(f"{len(ids)} facts are selected: {FACTS_MAX} at once is the limit")
    choice = form.get("choice")
    if choice == "forget":
        forgotten = await known.delete(*ids)
        return _notice(request, f"Forgotten: {plural(len(forgotten), 'fact')}.", "selected", choice="restore", fact=ids)
    if choice == "restore":
        for fact_id in ids:
            await known.restore(fact_id)
        return Notice(f"The agent knows {plural(len(ids), 'fact')} again.")
    for state in get_args(FactState):
        if choice == state:
            before = (await known.get(ids[0])).fact.state
            for fact_id in ids:
                await known.update(fact_id, state=state)
            text = STATE_NOTICES[state].format(plural(len(ids), "fact"))
            return _notice(request, text, "selected", choice=before, fact=ids)
    raise InvalidInput(f"choice is {str(choice)!r:.40}: use forget, restore, or a state of facts")


@pages.post("/agents/{agent_id}/facts/passages", shows=facts)
async def restore_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Make a passage that has faded active again."""
    passage_id = PassageId(field_of(await form_of(request), "passage"))
    await library.passages_of(agent_id_of(request)).restore_passage(passage_id)
    return Notice("The agent recalls the text again.")


@pages.post("/agents/{agent_id}/facts/never", shows=facts)
async def forget_for_good(request: Request, library: AsyncPerdure) -> Notice:
    """Forget a fact, and add the rule that keeps it from being extracted again."""
    known = library.agent_of(agent_id_of(request)).facts
    fact_id = FactId(field_of(await form_of(request), "fact"))
    hit = await known.get(fact_id)
    by_text = hit.fact.relation == TEXT_RELATION
    rule = await known.add_rule(
        text=hit.fact.text if by_text else hit.object.name, relation=None if by_text else hit.fact.relation
    )
    await known.delete(fact_id)
    said = f"“{rule.text}”" if by_text else f"{rule.relation} with “{rule.text}”"
    text = f"Forgotten, and a rule keeps it so: nothing that says {said} becomes a fact again."
    return _notice(request, text, "rules", str(rule.seq), "delete", fact=fact_id)


@pages.post("/agents/{agent_id}/facts/rules", shows=facts)
async def add_rule(request: Request, library: AsyncPerdure) -> Notice:
    """Say what must not be remembered."""
    form = await form_of(request)
    relation = as_relation(form.get("relation", "")) or None
    rule = await library.facts.of(agent_id_of(request)).add_rule(
        text=form.get("text", ""), relation=relation, entity=form.get("entity", "").strip() or None
    )
    return _notice(request, "The rule applies from now on.", "rules", str(rule.seq), "delete")


@pages.post("/agents/{agent_id}/facts/rules/{number}/delete", shows=facts)
async def delete_rule(request: Request, library: AsyncPerdure) -> Notice:
    """Lift a rule; with `fact` also bring back the fact that was forgotten with it."""
    number, known = request.path_params["number"], library.agent_of(agent_id_of(request)).facts
    if not is_number(number):
        raise InvalidInput(f"{number!r:.40} is not a rule's number")
    rule = next((one for one in await known.rules() if one.seq == int(number)), None)
    await known.delete_rule(int(number))
    fact = (await form_of(request)).get("fact")
    if fact:
        await known.restore(FactId(fact))
    if rule is None or fact:
        return Notice("The rule was removed, and the fact is back.")
    named = {"text": rule.text, "relation": rule.relation or "", "entity": rule.entity_name}
    return _notice(request, "The rule was removed.", "rules", **named)


@pages.post("/agents/{agent_id}/facts/capture", shows=facts)
async def set_capture(request: Request, library: AsyncPerdure) -> Notice:
    """Choose whether facts are captured: on, ask or off."""
    agent_id, mode = agent_id_of(request), (await form_of(request)).get("mode", "")
    agent = await library.all_agents.resolve(agent_id)

    def change(before: Agent) -> AgentChanges:
        """Return the agent's settings with the new mode of capture."""
        value = before.settings.get(FACT_SETTINGS)
        fields = value if isinstance(value, Mapping) else {}
        return {"settings": {**before.settings, FACT_SETTINGS: {**fields, "capture": mode}}}

    await library.agent_of(agent_id).edit(change)
    return _notice(request, MODES[mode], "capture", mode=load_agent_facts(agent.settings).capture)


@pages.post("/agents/{agent_id}/facts/pause", shows=facts)
async def pause(request: Request, library: AsyncPerdure) -> Notice:
    """Let extraction wait, or go on."""
    paused = (await form_of(request)).get("paused") == "yes"
    await library.facts.of(agent_id_of(request)).change_settings({"paused": paused})
    text = "Extraction waits. What is said meanwhile is read when you resume." if paused else "Extraction goes on."
    return _notice(request, text, "pause", paused="" if paused else "yes")


@pages.post("/agents/{agent_id}/facts/{fact_id}", shows=facts)
async def edit_fact(request: Request, library: AsyncPerdure) -> Notice:
    """Correct the sentence of a fact, and the days from and until which it was true."""
    form = await form_of(request)
    fact = (hit := await library.facts.get(FactId(request.path_params["fact_id"]))).fact
    agent = await library.all_agents.resolve(agent_id_of(request))
    now, times = fields_of(fact, agent), {"since": "valid_at", "until": "invalid_at"}
    form["text"] = field_of(form, "text").strip()
    mine = {field for field in changed_fields(form, now, {"text": "sentence"}) if form[field].strip() != now[field]}
    changes: Any = {times[one]: parse_time(one, form[one], timezone=agent.timezone) for one in mine if one in times}
    changes["text"] = form["text"] if "text" in mine else fact.text
    edited = await library.facts.edit(fact.id, changes)
    is_renamed = edited.subject.id == hit.subject.id and edited.subject.name != hit.subject.name
    name = f" {hit.subject.name} is now called {edited.subject.name}." if is_renamed else ""
    text = f"The fact was corrected; its earlier version stays in its history.{name}"
    shown = localize(attributes(fact, **times), agent)
    # An undo writes the whole time, of which the form shows the day.
    before = {one: at.isoformat() if at else "" for one, at in shown.items() if one in mine}
    was = json.dumps(fields_of(edited.fact, agent))
    return _notice(request, text, fact.id, text=fact.text, was=was, **before)


def fields_of(fact: Fact, agent: Agent) -> dict[str, str]:
    """What the form of a fact is filled with: its sentence, and the days from and until which it is true."""
    times = localize(attributes(fact, since="valid_at", until="invalid_at"), agent)
    return {"text": fact.text, **{name: date_of(at) for name, at in times.items()}}


def _notice(request: Request, text: str, /, *action: str, **fields: str | Sequence[str]) -> Notice:
    """The notice of what an action did, with the action that undoes it: its path below `/facts`, and form fields."""
    path = "/".join((f"/agents/{agent_id_of(request)}/facts", *action))
    values = {name: value if isinstance(value, str) else " ".join(value) for name, value in fields.items()}
    return Notice(text, undo=f"{path}?{request.query_params}", fields=values)
