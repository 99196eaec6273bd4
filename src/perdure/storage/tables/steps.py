"""`tx.steps`, `tx.prefixes`, `tx.system_messages`: each model call, and the stable first part of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from datetime import datetime
from typing import Any, NamedTuple

from perdure.core import runs
from perdure.core.conversations import SYSTEM_SEQ, ConversationKey, SystemMessage
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, MessageId, StepId, run_of
from perdure.core.models import Exchange
from perdure.core.text.forms import name_form
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.runs import FAILURE, USAGE
from perdure.storage.tables.table import OWN_AGENT, OWN_AGENT_OF, Table, find, find_run_of, first, register

_RECIPE_DEFAULTS: dict[str, Any] = {
    field.name: {} if field.default is MISSING else field.default
    for field in fields(runs.Recipe)
    if field.default is not MISSING or field.default_factory is not MISSING
}


def _dump_recipe(recipe: runs.Recipe) -> str:
    """The fields of the recipe that differ from their defaults."""
    values = {name: getattr(recipe, name) for name in runs.Recipe.__slots__}
    return row_format.dump({name: value for name, value in values.items() if value != _RECIPE_DEFAULTS.get(name)})


def _load_recipe(text: str) -> runs.Recipe:
    """The inverse of `_dump_recipe`."""
    values = row_format.load(text)
    if isinstance(choice := values.get("tool_choice"), list):
        values["tool_choice"] = tuple(choice)
    return runs.Recipe(**values | {"stubs": {int(seq): chars for seq, chars in values.get("stubs", {}).items()}})


def _load_changes(text: str) -> tuple[runs.PrefixChange, ...]:
    return tuple(runs.PrefixChange(*fields) for fields in row_format.load(text))


# Few steps have tags: without any the column is empty.
_TAGS = row_format.JSON_TUPLE._replace(null=())

_STEP = row_format.RowFormat(
    runs.Step,
    {row_format.Codec(_dump_recipe, _load_recipe): "recipe", USAGE: "usage", FAILURE: "failure", _TAGS: "tags"},
    columns="id, agent_id, run_seq, step_index, status, model, recipe, lease_number, usage, stop_reason, failure,"
    " created_at, ended_at, feedback, tags",
    attributes={"step_index": "index"},
    build=lambda step_index, **columns: runs.Step(index=step_index, **columns),
)
_CHANGES = row_format.Codec(
    lambda changes: row_format.dump([[one.what, one.name, one.change, one.by] for one in changes]), _load_changes
)
_PREFIX = row_format.RowFormat(runs.Prefix, {_CHANGES: "changes"})
_SYSTEM_MESSAGE = row_format.RowFormat(SystemMessage)
_KEY = "agent_id, run_seq, step_index"
_OWN_STEP = f"agent_id = :agent_id AND run_seq = :run_seq AND step_index = :step_index AND {OWN_AGENT}"
_NEW_COLUMNS = "id, agent_id, run_seq, step_index, status, model, recipe, lease_number, created_at"
_INSERT = (
    f"INSERT INTO steps ({_NEW_COLUMNS}) SELECT {', '.join(f':{name}' for name in _NEW_COLUMNS.split(', '))} FROM runs"
    f" WHERE agent_id = :agent_id AND seq = :run_seq AND {OWN_AGENT}"
)
_END_COLUMNS = "status, usage, stop_reason, failure, ended_at"
_END = f"UPDATE steps SET {row_format.assignments(_END_COLUMNS)} WHERE {_OWN_STEP}"


class CallTime(NamedTuple):
    """When a model was called, and by which run."""

    run_seq: int
    created_at: datetime


class Steps(Table):
    def add(
        self, run: runs.Run, step_id: StepId, *, index: int, model: str, recipe: runs.Recipe, at: datetime
    ) -> runs.Step:
        """Add a pending step: its model is about to be called. Raises: NotFound: no such run."""
        step = runs.Step(
            id=step_id,
            agent_id=run.key.agent_id,
            run_seq=run.key.seq,
            index=index,
            status="pending",
            model=model,
            recipe=recipe,
            lease_number=run.lease_number,
            created_at=at,
        )
        if not self._run_counted(_INSERT, **_STEP.params(step, _NEW_COLUMNS)):
            raise NotFound("agent", run.key.agent_id)
        if run_of(step_id) != run.id:
            register(self._db, self._org_id, run.key.agent_id, [(step_id, run.key.seq)])
        return step

    def get(self, step_id: StepId) -> runs.Step:
        """The step with this id. Raises: NotFound."""
        place = find(self._db, self._org_id, "step", step_id) or find_run_of(self._db, self._org_id, step_id)
        where = f"agent_id = :agent_id AND run_seq = :run_seq AND id = :id{self._db.for_update}"
        steps = place and self._read(where, agent_id=place[0], run_seq=place[1], id=row_format.storable(step_id))
        return first(steps or (), "step", step_id)

    def list_by_run(self, key: runs.RunKey) -> Sequence[runs.Step]:
        """The steps of a run, in order."""
        return self._read(
            "agent_id = :agent_id AND run_seq = :run_seq ORDER BY step_index", agent_id=key.agent_id, run_seq=key.seq
        )

    def list(
        self,
        agent_id: AgentId,
        *,
        conversation_seq: int | None = None,
        limit: int = 100,
        before: runs.Step | None = None,
    ) -> Sequence[runs.Step]:
        """The steps of an agent or of one conversation, newest first; with `before`, those older than it."""
        where = Conditions("agent_id = :agent_id")
        where.add(
            "EXISTS (SELECT 1 FROM runs r WHERE r.agent_id = steps.agent_id AND r.seq = steps.run_seq"
            " AND r.conversation_seq = ?)",
            conversation_seq,
        )
        if before is not None:
            where.add("(run_seq, step_index) < (?, ?)", before.run_seq, before.index)
        order = "ORDER BY run_seq DESC, step_index DESC LIMIT :limit"
        return self._read(f"{where} {order}", agent_id=agent_id, limit=limit, **where.params)

    def count_before(self, step: runs.Step, conversation_seq: int) -> int:
        """How many steps of a conversation are older than this one."""
        sql = (
            "SELECT COUNT(*) FROM steps s JOIN runs r ON r.agent_id = s.agent_id AND r.seq = s.run_seq"
            " WHERE s.agent_id = :agent_id AND r.conversation_seq = :conversation"
            f" AND (s.run_seq, s.step_index) < (:run_seq, :step_index) AND {OWN_AGENT}"
        )
        return int(self._value(sql, conversation=conversation_seq, **_STEP.params(step, _KEY)))

    def page(
        self,
        where: runs.StepFilter,
        *,
        limit: int = 100,
        newest_first: bool = True,
        after: runs.Step | None = None,
        before: runs.Step | None = None,
    ) -> Sequence[runs.Step]:
        """Return a page of the matching steps, without those of hidden runs: by number for one agent, by time for
        several. With `before` alone the page ends there."""
        columns = _PLACE if where.agent_id is None else _PLACE[2:]
        places = [None if step is None else _list_position(step)[-len(columns) :] for step in (after, before)]
        source = "steps s JOIN runs r ON r.agent_id = s.agent_id AND r.seq = s.run_seq"
        select = f"SELECT {_STEP.columns_of('s')} FROM {source}"
        return self._page(_STEP, select, _conditions(where), columns, places, ascending=not newest_first, limit=limit)

    def put_feedback(self, step: runs.Step, feedback: runs.Feedback | None, tags: Sequence[str]) -> runs.Step:
        """Replace a person's opinion of a step (None: there is none) and its tags; return the step with them."""
        step = replace(step, feedback=feedback, tags=name_form(tuple(tags)))
        self._set("steps", _STEP.params(step, _KEY), **_STEP.params(step, "feedback, tags"))
        return step

    def find_last_time(self, agent_id: AgentId) -> datetime | None:
        """When the agent's last model call began; None: it has made none."""
        newest = "ORDER BY run_seq DESC, step_index DESC LIMIT 1"
        sql = f"SELECT created_at FROM steps WHERE agent_id = :agent_id AND {OWN_AGENT} {newest}"
        return next((row_format.from_iso(row[0]) for row in self._rows(sql, agent_id=agent_id)), None)

    def list_calls(self, agent_id: AgentId, conversation_seq: int, *, limit: int = 100) -> Sequence[CallTime]:
        """The last `limit` model calls of a conversation, newest first."""
        rows = self._rows(
            f"SELECT r.seq, s.created_at FROM runs r{self._db.by_index('runs_by_conversation')} CROSS JOIN steps s"
            " WHERE r.agent_id = :agent_id AND r.conversation_seq = :conversation AND s.agent_id = r.agent_id"
            f" AND s.run_seq = r.seq AND {OWN_AGENT} ORDER BY r.seq DESC, s.step_index DESC LIMIT :limit",
            agent_id=agent_id,
            conversation=conversation_seq,
            limit=limit,
        )
        return [CallTime(run_seq, row_format.TIME.load(created_at)) for run_seq, created_at in rows]

    def end(
        self,
        step: runs.Step,
        *,
        status: runs.StepStatus,
        at: datetime,
        usage: runs.Usage = runs.NO_USAGE,
        stop_reason: runs.StopReason | None = None,
        failure: runs.Failure | None = None,
    ) -> runs.Step:
        """End a step; return it as stored."""
        ended = replace(step, status=status, usage=usage, stop_reason=stop_reason, failure=failure, ended_at=at)
        self._run(_END, **_STEP.params(ended, f"{_KEY}, {_END_COLUMNS}"))
        return ended

    def get_factor(self, model: str) -> float:
        """How many tokens the model's provider counts for each that is estimated; 1 if nothing is known."""
        sql = "SELECT factor FROM token_factors WHERE org_id = :org_id AND model = :model"
        return float(self._value(sql, model=row_format.storable(model)) or 1.0)

    def put_factor(self, model: str, factor: float) -> None:
        """Store the factor by which `get_factor` corrects the estimates for a model."""
        self._run(
            f"{row_format.insert_into('token_factors', 'org_id, model, factor')}"
            " ON CONFLICT (org_id, model) DO UPDATE SET factor = excluded.factor",
            model=row_format.storable(model),
            factor=factor,
        )

    def put_exchange(self, step: runs.Step, exchange: Exchange) -> None:
        """Store a step's request and response as sent; a second exchange replaces the first."""
        self._run(
            f"INSERT INTO step_exchanges ({_KEY}, request, response, attempts)"
            f" SELECT :agent_id, :run_seq, :step_index, :request, :response, :attempts WHERE {OWN_AGENT}"
            f" ON CONFLICT ({_KEY}) DO UPDATE SET request = excluded.request,"
            " response = excluded.response, attempts = excluded.attempts",
            **_STEP.params(step, _KEY),
            request=row_format.dump(exchange.request),
            response=row_format.dump(exchange.response),
            attempts=exchange.attempts,
        )

    def exchange(self, step: runs.Step) -> Exchange | None:
        """The request and response of a step as sent, if they are stored."""
        sql = f"SELECT request, response, attempts FROM step_exchanges WHERE {_OWN_STEP}"
        for request, response, attempts in self._rows(sql, **_STEP.params(step, _KEY)):
            return Exchange(request=row_format.load(request), response=row_format.load(response), attempts=attempts)
        return None

    def _read(self, where: str, **params: Any) -> Sequence[runs.Step]:
        """The steps of agent `agent_id` for which `where` is true: SQL, with any ORDER BY and LIMIT."""
        sql = f"SELECT {_STEP.columns} FROM steps WHERE {OWN_AGENT} AND {where}"
        return self._all(_STEP, sql, **params)


_PLACE = ("s.created_at", "s.agent_id", "s.run_seq", "s.step_index")


def _list_position(step: runs.Step) -> tuple[str, str, int, int]:
    """Return the position of a step among all steps: the values of the columns `_PLACE`."""
    return row_format.iso(step.created_at), step.agent_id, step.run_seq, step.index


def _conditions(where: runs.StepFilter) -> Conditions:
    """The conditions of a filter, on the tables `steps s` and `runs r`."""
    conditions = Conditions(OWN_AGENT_OF.format("s"), "r.hidden = 0")
    conditions.equal("s.agent_id", where.agent_id)
    if where.model is not None:
        name = row_format.storable(where.model)
        # The handle ends with the name, behind a slash.
        conditions.add(f"(s.model = ? OR SUBSTR(s.model, LENGTH(s.model) - {len(name)}) = ?)", name, f"/{name}")
    conditions.equal("s.feedback", where.feedback)
    if where.has_feedback is not None:
        conditions.add(f"s.feedback IS {'NOT ' if where.has_feedback else ''}NULL")
    conditions.have_tags("COALESCE(s.tags, '')", name_form(where.tags), every=False)
    conditions.among("r.id", where.run_ids)
    conditions.hold("(SELECT d.settings FROM agent_details d WHERE d.agent_id = s.agent_id)", where.holding)
    conditions.add("s.created_at >= ?", where.since and row_format.iso(where.since))
    conditions.add("s.created_at <= ?", where.until and row_format.iso(where.until))
    return conditions


class Prefixes(Table):
    def add(self, prefix: runs.Prefix) -> runs.Prefix:
        """Add a prefix, and return it with its number. Raises: NotFound: no such agent."""
        prefix = replace(prefix, seq=self._take("agents", "prefix_seq", prefix.agent_id, "agent"))
        self._run(row_format.insert_into("prefixes", _PREFIX.columns), **_PREFIX.params(prefix))
        return prefix

    def get(self, agent_id: AgentId, seq: int) -> runs.Prefix:
        """The prefix of an agent with this number. Raises: NotFound."""
        sql = f"SELECT {_PREFIX.columns} FROM prefixes WHERE agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}"
        return _PREFIX.read(first(self._rows(sql, agent_id=agent_id, seq=seq), "prefix", f"{seq} of {agent_id}"))

    def list_rewrites(
        self, agent_id: AgentId, conversation_seq: int, *, after_seq: int, upto_seq: int
    ) -> Sequence[tuple[int, str, tuple[runs.PrefixChange, ...]]]:
        """(number, reason, changes) of the conversation's prefixes with numbers in (after_seq, upto_seq], in order."""
        sql = (
            "SELECT seq, reason, changes FROM prefixes WHERE agent_id = :agent_id AND conversation_seq = :conversation"
            f" AND seq > :after AND seq <= :upto AND {OWN_AGENT} ORDER BY seq"
        )
        rows = self._rows(sql, agent_id=agent_id, conversation=conversation_seq, after=after_seq, upto=upto_seq)
        return [(row[0], row[1], _load_changes(row[2])) for row in rows]

    def list_revised(self, prefix: runs.Prefix) -> Sequence[int]:
        """The numbers of messages behind a prefix that were changed or removed after it was written, in order."""
        rows = self._rows(
            "SELECT DISTINCT r.seq FROM message_revisions r"
            " JOIN messages m ON m.agent_id = r.agent_id AND m.seq = r.seq"
            " WHERE r.agent_id = :agent_id AND r.seq >= :first AND r.settings_revision > :revision"
            f" AND m.conversation_seq = :conversation AND {OWN_AGENT} ORDER BY 1",
            agent_id=prefix.agent_id,
            first=prefix.from_message_seq,
            revision=prefix.settings_revision,
            conversation=prefix.conversation_seq,
        )
        return [row[0] for row in rows]


class SystemMessages(Table):
    def put(self, message: SystemMessage) -> SystemMessage:
        """Add or replace the system message, but for `created_at`; return it as stored. Raises: NotFound: the agent."""
        params = _SYSTEM_MESSAGE.params(message)
        values = ", ".join(f":{name}" for name in _SYSTEM_MESSAGE.columns.split(", "))
        key = (message.agent_id, message.conversation_seq)
        is_new = key not in self.find_ids([key])
        rows = self._rows(
            f"INSERT INTO system_messages ({_SYSTEM_MESSAGE.columns}) SELECT {values} WHERE {OWN_AGENT}"
            " ON CONFLICT (agent_id, conversation_seq) DO UPDATE SET text = excluded.text, blocks = excluded.blocks,"
            " compiled_at = excluded.compiled_at RETURNING created_at",
            **params,
        )
        created_at = row_format.from_iso(first(rows, "agent", message.agent_id)[0])
        if is_new:
            seq = SYSTEM_SEQ + message.conversation_seq
            register(self._db, self._org_id, message.agent_id, [(message.id, seq)])
        return replace(message, created_at=created_at)

    def renew(self, agent_id: AgentId, conversation_seq: int, blocks: Mapping[str, int], *, at: datetime) -> bool:
        """Drop the text of a conversation's system message, so that it is rendered when it is read, with these versions
        of blocks (id -> version). False: the conversation has no system message."""
        found = self._rows(
            "UPDATE system_messages SET text = '', blocks = :blocks, compiled_at = :at"
            f" WHERE agent_id = :agent_id AND conversation_seq = :seq AND {OWN_AGENT} RETURNING 1",
            agent_id=agent_id,
            seq=conversation_seq,
            blocks=row_format.dump(blocks),
            at=row_format.iso(at),
        )
        return bool(found)

    def find(self, agent_id: AgentId, conversation_seq: int) -> SystemMessage | None:
        """The system message of a conversation; None: the conversation was removed, or is of an older store."""
        return next(iter(self.list(agent_id, conversation_seq=conversation_seq, limit=1)), None)

    def find_ids(self, keys: Sequence[ConversationKey]) -> Mapping[ConversationKey, MessageId]:
        """Conversation -> the id of its system message; a conversation without one is left out."""
        own = OWN_AGENT_OF.format("s")
        sql = f"SELECT agent_id, conversation_seq, id FROM system_messages s WHERE {{keys}} AND {own}"
        found = self._rows_of_each(sql, "agent_id = ? AND conversation_seq = ?", keys)
        return {key: MessageId(rows[0][0]) for key, rows in found.items() if rows}

    def list(
        self,
        agent_id: AgentId,
        *,
        conversation_seq: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Sequence[SystemMessage]:
        """The system messages of an agent, or that of one conversation, in order of conversations; `after_seq` and
        `before_seq` limit them as in a page of `tx.messages`, where their numbers are negative."""
        if conversation_seq is not None:
            place = SYSTEM_SEQ + conversation_seq
            after_seq = max(place - 1, place - 1 if after_seq is None else after_seq)
            before_seq = min(place + 1, place + 1 if before_seq is None else before_seq)
        where = Conditions("m.agent_id = :agent_id", OWN_AGENT)
        where.between("m.conversation_seq", _conversation_at(after_seq), _conversation_at(before_seq))
        return self._all(
            _SYSTEM_MESSAGE,
            f"SELECT {_SYSTEM_MESSAGE.columns_of('m')} FROM system_messages m JOIN conversations c"
            f" ON c.agent_id = m.agent_id AND c.seq = m.conversation_seq AND c.removed_at IS NULL WHERE {where}"
            f" ORDER BY m.conversation_seq {'DESC' if newest_first else 'ASC'} LIMIT :limit",
            agent_id=agent_id,
            limit=limit,
            **where.params,
        )


def _conversation_at(seq: int | None) -> int | None:
    """The number of the conversation whose system message has the number `seq`; None for None."""
    return None if seq is None else seq - SYSTEM_SEQ
