"""`tx.corrections`: changes of memory and history that can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.forgetting.corrections import Correction, CorrectionItem, CorrectionKind, title_of
from perdure.core.ids import AgentId
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.table import OWN_AGENT, OWN_AGENT_OF, Table, first, own_agent

CORRECTIONS_MAX = 100
"""How many corrections of an agent can be undone. Of older ones only the texts that were forgotten are kept, for they
are still forgotten."""

_FORGOTTEN = "kind = 'forget' AND undone_at IS NULL"
_CORRECTION = row_format.RowFormat(Correction)
_ITEM = row_format.RowFormat(CorrectionItem)
_KEY = "agent_id, number"


class Corrections(Table):
    def add(self, agent_id: AgentId, kind: CorrectionKind, text: str, *, at: datetime) -> Correction:
        """Add a correction without items, and remove those before the newest hundred. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        number = self._next("corrections", "number", agent_id=own)
        correction = Correction(agent_id=agent_id, number=number, kind=kind, text=text, items=0, created_at=at)
        self._run(row_format.insert_into("corrections", _CORRECTION.columns), **_CORRECTION.params(correction))
        for table, which in (("correction_items", ""), ("corrections", f" AND NOT ({_FORGOTTEN})")):
            self._run(
                f"DELETE FROM {table} WHERE agent_id = :id AND number <= :oldest{which}",
                id=own,
                oldest=number - CORRECTIONS_MAX,
            )
        return correction

    def add_items(self, correction: Correction, items: Sequence[CorrectionItem]) -> Correction:
        """Add what a correction changed, and return the correction with the new number of items. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, correction.agent_id)
        key = {"agent_id": own, "number": correction.number}
        self._db.run_many(
            row_format.insert_into("correction_items", f"agent_id, number, seq, {_ITEM.columns}"),
            [{**key, "seq": correction.items + place, **_ITEM.params(item)} for place, item in enumerate(items)],
        )
        correction = replace(correction, items=correction.items + len(items))
        self._set("corrections", key, items=correction.items)
        return correction

    def get(self, agent_id: AgentId, number: int) -> Correction:
        """A correction of an agent, by its number. Raises: NotFound."""
        found = self._read("number = :number", agent_id, number=number)
        return first(found, "correction", str(number), hint="the newest hundred of an agent are kept")

    def list(self, agent_id: AgentId, *, limit: int = 20, undone: bool = True) -> Sequence[Correction]:
        """The corrections of an agent, newest first; `undone`: also those that were undone, or have nothing to undo."""
        where = "1 = 1" if undone else "undone_at IS NULL AND (items > 0 OR kind <> 'forget')"
        return self._read(f"{where} ORDER BY number DESC LIMIT :limit", agent_id, limit=limit)

    def forgotten(self, agent_id: AgentId) -> Sequence[Correction]:
        """The corrections that made an agent forget texts, with the texts (older Perdure: their beginnings)."""
        sql = f"SELECT {_CORRECTION.columns} FROM corrections WHERE agent_id = :agent_id AND {OWN_AGENT}"
        return self._all(_CORRECTION, f"{sql} AND {_FORGOTTEN} ORDER BY number", agent_id=agent_id)

    def forgotten_in(self, agent_ids: Sequence[AgentId], kind: str, ids: Sequence[str]) -> Sequence[Correction]:
        """The corrections by which these agents have forgotten texts in things of a kind, those with these ids."""
        things = Conditions("i.agent_id = c.agent_id AND i.number = c.number AND i.kind = :kind", kind=kind)
        things.among("i.id", ids)
        sql = (
            f"SELECT c.agent_id, {_CORRECTION.columns_of('c')} FROM corrections c WHERE {{keys}} AND c.kind = 'forget'"
            f" AND {OWN_AGENT_OF.format('c')} AND EXISTS (SELECT 1 FROM correction_items i WHERE {things})"
            " ORDER BY c.number"
        )
        found = self._rows_of_each(sql, "c.agent_id", agent_ids, **things.params)
        return [_CORRECTION.read(row) for rows in found.values() for row in rows]

    def items(self, correction: Correction, *, limit: int = 50) -> Sequence[CorrectionItem]:
        """The items of a correction that are not undone yet, the last first."""
        return self._all(
            _ITEM,
            f"SELECT {_ITEM.columns} FROM correction_items WHERE agent_id = :agent_id AND number = :number"
            f" AND {OWN_AGENT} ORDER BY seq DESC LIMIT :limit",
            limit=limit,
            **_CORRECTION.params(correction, _KEY),
        )

    def list_of(self, agent_id: AgentId, kind: str, id: str) -> Sequence[tuple[Correction, CorrectionItem]]:
        """(correction, item) for each change of a thing (kind and id) that was not undone, oldest first."""
        rows = self._rows(
            f"SELECT {_CORRECTION.columns_of('c')}, {_ITEM.columns_of('i')} FROM correction_items i JOIN corrections c"
            " ON c.agent_id = i.agent_id AND c.number = i.number WHERE i.agent_id = :agent_id AND i.kind = :kind"
            f" AND i.id = :id AND {OWN_AGENT} ORDER BY i.number, i.seq",
            agent_id=agent_id,
            kind=kind,
            id=row_format.storable(id),
        )
        size = len(_CORRECTION.columns.split(", "))
        return [(_CORRECTION.read(row[:size]), _ITEM.read(row[size:])) for row in rows]

    def drop_items(self, correction: Correction, count: int) -> None:
        """Delete the last items of a correction: the caller has undone them."""
        self._run(
            "DELETE FROM correction_items WHERE agent_id = :agent_id AND number = :number AND seq IN (SELECT i.seq FROM"
            " correction_items i WHERE i.agent_id = :agent_id AND i.number = :number ORDER BY i.seq DESC LIMIT :count)"
            f" AND {OWN_AGENT}",
            count=count,
            **_CORRECTION.params(correction, _KEY),
        )

    def end(self, correction: Correction, *, at: datetime) -> Correction:
        """Mark a correction as undone, and return it so."""
        self._set("corrections", _CORRECTION.params(correction, _KEY), undone_at=row_format.iso(at))
        return replace(correction, undone_at=at)

    def _read(self, where: str, agent_id: AgentId, **params: Any) -> Sequence[Correction]:
        """The agent's newest hundred corrections for which `where` (SQL) is true, their texts cut to titles."""
        newest = "number > (SELECT MAX(number) FROM corrections WHERE agent_id = :agent_id) - :most"
        sql = f"SELECT {_CORRECTION.columns} FROM corrections WHERE agent_id = :agent_id AND {OWN_AGENT} AND {newest}"
        rows = self._rows(f"{sql} AND {where}", agent_id=agent_id, most=CORRECTIONS_MAX, **params)
        return [replace(one, text=title_of(one.text)) for one in map(_CORRECTION.read, rows)]
