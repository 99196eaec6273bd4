"""The tables of facts: graphs, their entities, facts with all versions, and the episodes that they come from."""

from perdure.features.facts.tables.entities import Entities as Entities
from perdure.features.facts.tables.episodes import Episodes as Episodes
from perdure.features.facts.tables.facts import Facts as Facts
from perdure.features.facts.tables.graphs import Graphs as Graphs
