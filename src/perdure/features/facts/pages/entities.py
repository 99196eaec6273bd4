"""Whom and what facts are about: communities, and entities, which a person renames and merges."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import cast, get_args
from urllib.parse import urlencode

from starlette.requests import Request

from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.ids import EntityId
from perdure.core.text.reprs import attributes
from perdure.features.facts.pages.lists import facts_frame
from perdure.features.facts.service import AsyncFacts
from perdure.features.facts.tables.entities import EntitySort
from perdure.features.facts.values.facts import CommunityHit, Entity
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Pages, agent_id_of, field_of, form_of, is_number

ENTITIES_MAX, COMMUNITIES_MAX, MEMBERS_MAX = 50, 10, 12

pages = Pages()


@pages.get("/agents/{agent_id}/facts/entities", "facts/entities.html", is_live=True)
async def entities(request: Request, library: AsyncPerdure) -> Data:
    """The communities, largest first or matching `q`, and the entities, by number of facts or by `sort`."""
    agent_id, query = agent_id_of(request), request.query_params
    agent = await library.all_agents.resolve(agent_id)
    search, facts = query.get("q", "").strip(), library.agent_of(agent_id).facts
    communities = await facts.communities(search, limit=COMMUNITIES_MAX)
    sort = query["sort"] if query.get("sort") in get_args(EntitySort) else "-facts"
    start = int(query["from"]) if is_number(query.get("from", "")) else 0
    found = await facts.sorted_entities(cast(EntitySort, sort), offset=start, limit=ENTITIES_MAX + 1)
    return facts_frame(agent, "entities") | {
        "search": search,
        "communities": [_community_shape(community) for community in communities],
        "entities": [_entity_shape(one) for one in found[:ENTITIES_MAX]],
        "sort": sort,
        "more": urlencode({"sort": sort, "from": start + ENTITIES_MAX}) if len(found) > ENTITIES_MAX else None,
    }


def _community_shape(hit: CommunityHit) -> Data:
    """A community with some of its members, as the page shows it."""
    members = [attributes(member, "id", "name") for member in hit.members[:MEMBERS_MAX]]
    return attributes(hit.community, "name", "summary", "size", due="summary_due") | {"members": members}


def _entity_shape(entity: Entity) -> Data:
    """An entity with its other names, as the page shows it."""
    aliases = [alias for alias in entity.aliases if alias != entity.name]
    return attributes(entity, "id", "name", "type", "summary", facts="fact_count") | {"aliases": aliases}


@pages.post("/agents/{agent_id}/facts/entities/selected", shows=entities)
async def merge_selected(request: Request, library: AsyncPerdure) -> Notice:
    """Merge the selected entities into the one of most facts."""
    form, facts = await request.form(), library.agent_of(agent_id_of(request)).facts
    ids = dict.fromkeys(value for value in form.getlist("entity") if isinstance(value, str))
    found = [await facts.get_entity(EntityId(one)) for one in ids]
    if len(found) < 2:
        raise InvalidInput("choose at least two entities: tick the boxes beside those that are the same")
    kept = max(found, key=lambda one: (one.fact_count, -one.seq))
    return await _merge(request, facts, [one for one in found if one is not kept], kept)


@pages.post("/agents/{agent_id}/facts/entities/split", shows=entities)
async def split(request: Request, library: AsyncPerdure) -> Notice:
    """Take a merge back; `entity` has the ids of those that were merged, with spaces between them."""
    facts = library.agent_of(agent_id_of(request)).facts
    names = [
        (await facts.split_entity(EntityId(one))).name for one in field_of(await form_of(request), "entity").split()
    ]
    return Notice(f"{_join_names(names)} {'is' if len(names) == 1 else 'are'} separate again.")


@pages.post("/agents/{agent_id}/facts/entities/{entity_id}", shows=entities)
async def edit(request: Request, library: AsyncPerdure) -> Notice:
    """Change name, type and aliases of an entity. Its old name becomes an alias, but not with `exact`: in an undo."""
    form, facts = await form_of(request), library.agent_of(agent_id_of(request)).facts
    before = await facts.get_entity(EntityId(request.path_params["entity_id"]))
    if (name := field_of(form, "name").strip()) != before.name:
        await _check_free(facts, name, before)
    aliases = [line for line in map(str.strip, form.get("aliases", "").split("\n")) if line]
    if before.name != name and not form.get("exact"):
        aliases.append(before.name)
    after = await facts.change_entity(before.id, name=form["name"], type=field_of(form, "type"), aliases=aliases)
    if form.get("exact"):
        return Notice(f"“{after.name}” is as it was.")
    fields = {"name": before.name, "type": before.type, "aliases": "\n".join(before.aliases), "exact": "yes"}
    return Notice(f"“{after.name}” was changed.", undo=_path(request, before.id), fields=fields)


@pages.post("/agents/{agent_id}/facts/entities/{entity_id}/merge", shows=entities)
async def merge(request: Request, library: AsyncPerdure) -> Notice:
    """Merge an entity into the one that `into` names."""
    facts, into = library.agent_of(agent_id_of(request)).facts, field_of(await form_of(request), "into").strip()
    gone = await facts.get_entity(EntityId(request.path_params["entity_id"]))
    return await _merge(request, facts, [gone], into)


async def _check_free(facts: AsyncFacts, name: str, entity: Entity) -> None:
    """Raises: AlreadyExists: another entity has this name; InvalidInput: several do."""
    with contextlib.suppress(NotFound):
        if (other := await facts.get_entity(name)).seq != entity.seq:
            raise AlreadyExists(
                "entity", other.name, helps=f"if {entity.name!r:.80} is the same, merge it into that one"
            )


async def _merge(request: Request, facts: AsyncFacts, gone: Sequence[Entity], into: Entity | str) -> Notice:
    """Merge entities into one, given as such or by its name; the notice takes it back."""
    name = into if isinstance(into, str) else into.id
    for one in gone:
        kept = await facts.merge_entities(one.id, name)
        name = kept.id
    text = f"{_join_names([one.name for one in gone])} {'was' if len(gone) == 1 else 'were'} merged into “{kept.name}”."
    return Notice(text, undo=_path(request, "split"), fields={"entity": " ".join(one.id for one in reversed(gone))})


def _join_names(names: Sequence[str]) -> str:
    """Names for people, as in “Ada”, “Bob” and “Eve”."""
    quoted = [f"“{name}”" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def _path(request: Request, action: str) -> str:
    """The path of an action of this page, with what is shown."""
    query = f"?{request.query_params}" if request.query_params else ""
    return f"/agents/{agent_id_of(request)}/facts/entities/{action}{query}"
