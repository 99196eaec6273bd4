"""Facts as a drawing: entities as points, facts as lines between them, on a day that a slider chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, tzinfo

from starlette.requests import Request

from perdure.core.text.reprs import attributes
from perdure.core.text.zones import local, zone
from perdure.features.facts.entities import NODES_MAX
from perdure.features.facts.pages.lists import facts_frame
from perdure.features.facts.values.facts import Entity, Fact
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Pages, agent_id_of, is_number

MARGIN = 6
"""The empty edge of the drawing, in hundredths of its width and height."""
LABELS_MAX = 30
"""With more lines than these, only the one that has the focus or the pointer shows what it says."""
NAME_CHARS = 22
BESIDE = 12
"""How many pixels the second line between two points stands from the first."""
NEVER, ALWAYS = 9_999_999, 0
"""The days, as `date.toordinal` counts them, of a fact whose end or beginning is unknown."""

pages = Pages()


@pages.get("/agents/{agent_id}/facts/graph", "facts/graph.html")
async def graph(request: Request, library: AsyncPerdure) -> Data:
    """The entities with most facts, and the facts true on `day` (counted from the year 1); positions never change."""
    agent_id, query = agent_id_of(request), request.query_params
    agent = await library.all_agents.resolve(agent_id)
    found = await library.agent_of(agent_id).facts.network()
    tz, today = zone(agent.timezone), local(library.app.ports.clock.now(), zone(agent.timezone)).date()
    days = [one for fact in found.facts for one in _days(fact, tz) if one not in (NEVER, ALWAYS)]
    first, last = min([*days, today.toordinal()]), max([*days, today.toordinal()])
    asked = query.get("day", "")
    day = min(max(int(asked), first), last) if is_number(asked) else today.toordinal()
    number = {one.seq: place for place, one in enumerate(found.entities)}
    ends = [(number[fact.subject], number[fact.object]) for fact in found.facts]
    from perdure.features.facts.drawing import place_points  # numpy, which few servers need

    places = [_clamp(place) for place in place_points(len(number), ends)]
    edges = [_edge(*line, found.entities, tz, day) for line in _lines(found.facts, ends, places)]
    return facts_frame(agent, "graph") | {
        "nodes": _nodes(found.entities, places, edges),
        "edges": edges,
        "first": first,
        "last": last,
        "day": day,
        "shown_day": date.fromordinal(day),
        "has_labels": len(edges) <= LABELS_MAX,
        "is_whole": found.is_whole,
        "nodes_max": NODES_MAX,
    }


def _days(fact: Fact, tz: tzinfo) -> tuple[int, int]:
    """The day from which and that until which a fact is true, in a time zone."""

    def day(at: datetime | None, unknown: int) -> int:
        """Return the number of the day, counted from the year 1."""
        return unknown if at is None else local(at, tz).date().toordinal()

    return day(fact.valid_at, ALWAYS), day(fact.invalid_at, NEVER)


def _lines(
    facts: Sequence[Fact], ends: Sequence[tuple[int, int]], places: Sequence[tuple[float, float]]
) -> Iterator[tuple[Fact, tuple[int, int], Data]]:
    """Yield each fact with the numbers of its two points and its line: ends and middle in hundredths, and the shift in
    pixels if several facts join the same points."""
    beside = Counter[frozenset[int]]()
    for fact, (one, other) in zip(facts, ends, strict=True):
        (x1, y1), (x2, y2) = places[one], places[other]
        count = beside[frozenset((one, other))]
        beside[frozenset((one, other))] += 1
        off = BESIDE * ((count + 1) // 2) * (1 if count % 2 else -1)
        dx, dy = (off, 0) if abs(y2 - y1) > abs(x2 - x1) else (0, off)
        line = {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "x": round((x1 + x2) / 2, 1), "y": round((y1 + y2) / 2, 1)}
        yield fact, (one, other), line | {"dx": dx, "dy": dy}


def _edge(fact: Fact, ends: tuple[int, int], line: Data, entities: Sequence[Entity], tz: tzinfo, day: int) -> Data:
    """A fact as the page draws it, and whether it is true on a day."""
    since, until = _days(fact, tz)
    return {
        **attributes(fact, "id", "text", "valid_at", "invalid_at"),
        **line,
        "relation": fact.relation.replace("_", " ").lower(),
        "since": since,
        "until": until,
        "is_shown": since <= day < until,
        "from": ends[0],
        "to": ends[1],
        "subject": entities[ends[0]].name,
        "object": entities[ends[1]].name,
    }


def _nodes(entities: Sequence[Entity], places: Sequence[tuple[float, float]], edges: Sequence[Data]) -> list[Data]:
    """A point for each entity, the larger the more lines lead to it."""
    counts = Counter(end for edge in edges for end in (edge["from"], edge["to"]))
    shown = {end for edge in edges if edge["is_shown"] for end in (edge["from"], edge["to"])}
    nodes = []
    for number, one in enumerate(entities):
        x, y = places[number]
        label = one.name if len(one.name) <= NAME_CHARS else f"{one.name[: NAME_CHARS - 1]}…"
        node = {"x": x, "y": y, "radius": round(5 + 2 * counts[number] ** 0.5, 1), "label": label}
        anchor = "start" if x < 2 * MARGIN else "end" if x > 100 - 2 * MARGIN else "middle"
        nodes.append(node | attributes(one, "id", "name", "type") | {"is_shown": number in shown, "anchor": anchor})
    return nodes


def _clamp(place: tuple[float, float]) -> tuple[float, float]:
    """A place within the drawing's margins, in hundredths."""
    x, y = (round(MARGIN + side * (100 - 2 * MARGIN), 1) for side in place)
    return x, y
