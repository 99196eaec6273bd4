"""A snapshot as one JSON object: written from the store, and made into a new agent, here or elsewhere."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictInt, TypeAdapter, ValidationError, create_model

from perdure.core.blocks import Author, Block
from perdure.core.errors import IllegalLog, InvalidInput, NotFound, SnapshotDiffers, StoreDamaged
from perdure.core.ids import AgentId, BlockId, derived_id
from perdure.core.messages import Message
from perdure.core.text.json_strings import json_start
from perdure.domain.agents.units import AgentChanges, NewAgent, create_agent, update_agent
from perdure.domain.blocks.units import BLOCK_FIELDS, NewBlock, create_block
from perdure.domain.conversations.agent_copies import Forgotten, forgotten_texts
from perdure.engine.ports import UnitInputs
from perdure.features.snapshots.copied_rows import TABLES, AgentRows, NewIds, Row, columns_of
from perdure.features.snapshots.moments import hash_of_request, request_of, rows_of
from perdure.features.snapshots.units import apply_moment, moment_of_copy, restore, unforgotten_value
from perdure.features.snapshots.values import (
    HASH,
    VERSION,
    BlockRef,
    Clone,
    Restored,
    SavePoint,
    SnapshotDocument,
    hash_of,
)
from perdure.library.agents.agents import RENAME_HELPS, name_for
from perdure.storage.database.row_format import load, storable
from perdure.storage.tables.message_rows import PARTS
from perdure.storage.tx import Tx

_NUMBER_MAX = 2**53
"""The largest number in a document: what every program reads of JSON, and more than any row has."""


@functools.cache
def _adapter() -> TypeAdapter[SnapshotDocument]:
    """What makes JSON of a document, and reads it."""
    return TypeAdapter(SnapshotDocument)


def build_document(tx: Tx, moment: SavePoint, inputs: UnitInputs) -> dict[str, Any]:
    """Return a moment of an agent as one object, with all that its next request is built of. Raises: NotFound."""
    agent, rows = tx.agents.get(moment.agent_id), _rows(tx, moment)
    forgotten = forgotten_texts(tx, agent.id)
    document = SnapshotDocument(
        version=VERSION,
        name=agent.name,
        description=agent.description,
        made_at=inputs.now,
        moment=moment,
        blocks=[one for at in moment.blocks if (one := _block(tx, at, forgotten)) is not None],
        request_hash=hash_of_request(request_of(tx, moment)),
        earlier_messages=max(0, tx.messages.count(agent.id) - len(rows["messages"])),
        rows=rows,
    )
    before = text = json.dumps(_adapter().dump_python(document, mode="json"))
    for redactor, _ in forgotten:
        text = redactor.redact(text)
    shape: dict[str, Any] = json.loads(text)
    if text != before:
        shape["request_hash"] = ""  # it is not what the original was sent
    return {**shape, HASH: hash_of(shape)}


def _block(tx: Tx, at: BlockRef, forgotten: Forgotten) -> Block | None:
    """Return a block of a moment with its value there; None: it was deleted."""
    if (value := unforgotten_value(tx, at, forgotten)) is None:
        return None
    block = tx.blocks.get(BlockId(at.id))
    limit = max(block.limit_chars, len(value))
    return replace(block, label=at.label, value=value, version=at.version, limit_chars=limit)


def _rows(tx: Tx, moment: SavePoint) -> dict[str, list[Row]]:
    """Return the log rows that the next request is built from: messages in view as shown now, their runs, the prefix
    with its summaries, and the steps that sent it."""
    agent_id, seq = moment.agent_id, moment.conversation_seq
    prefix = None if moment.prefix_seq is None else tx.prefixes.get(agent_id, moment.prefix_seq)
    from_seq = moment.first_seq if prefix is None else prefix.from_message_seq
    pinned, nodes = ((), ()) if prefix is None else (prefix.pinned, prefix.nodes)
    client_tools = None if prefix is None else prefix.client_tools
    shown = {row.seq: row for row in rows_of(tx, moment, min((from_seq, *pinned)))}
    shown = {number: row for number, row in shown.items() if number >= from_seq or number in pinned}
    run_seqs = {row.run_seq for row in shown.values() if row.run_seq is not None}
    select = partial(tx.of(AgentRows).select, agent_id=agent_id)
    runs = select("runs", column="seq", values=run_seqs)
    digests = {client_tools, *(run["client_tools"] for run in runs)} - {None}
    rows = {
        "messages": [_shown_row(row, shown[row["seq"]]) for row in select("messages", column="seq", values=shown)],
        "prefixes": select("prefixes", column="seq", values=() if prefix is None else (prefix.seq,)),
        "summary_nodes": select("summary_nodes", column="seq", values=nodes),
        "runs": runs,
        "steps": select("steps", column="run_seq", values=run_seqs),
        "client_tools": select("client_tools", column="digest", values=digests),
        "message_sources": select("message_sources", column="seq", values=shown),
    }
    rows["summary_nodes"] = [row for row in rows["summary_nodes"] if row["conversation_seq"] == seq]
    rows["steps"] = [row for row in rows["steps"] if load(row["recipe"])["prefix_seq"] == moment.prefix_seq]
    return rows


def _shown_row(row: Row, message: Message) -> Row:
    """Return the row of a message as it is shown now, without its earlier versions."""
    return {
        **row,
        "parts": PARTS.store(message.parts),
        "name": message.name and storable(message.name),
        "revision": 0,
        "removed": 0,
    }


def read_document(value: Any) -> SnapshotDocument:
    """Return a snapshot that was one object, after checking its form, version and hash. Raises: InvalidInput."""
    if not isinstance(value, Mapping):
        raise InvalidInput("a snapshot is a JSON object")
    if value.get("version") != VERSION:
        named = json_start(value.get("version"), 40)
        raise InvalidInput(f"version: {named} is not a version of snapshots, which is {VERSION}")
    try:
        if value.get(HASH) != hash_of(value):
            raise InvalidInput("hash: the snapshot was changed since it was written, so it is not used")
        _check_numbers(value)
        document = _adapter().validate_python(value)
        _rows_adapter().validate_python(document.rows)
    except RecursionError as error:
        raise InvalidInput("the snapshot is nested too deeply") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    for table, rows in document.rows.items():
        for names in (TABLES[table][0].split(", "), ["id"]):
            if rows and names[0] in rows[0] and len({tuple(row[name] for name in names) for row in rows}) < len(rows):
                raise InvalidInput(f"rows.{table}: two rows have the same {' and '.join(names)}")
    return document


def _check_numbers(value: Any) -> None:
    """Check that no number in a document is larger than a store's. Raises: InvalidInput."""
    if isinstance(value, int) and abs(value) > _NUMBER_MAX:
        raise InvalidInput("a number in the snapshot is too large")
    for one in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        _check_numbers(one)


@functools.cache
def _rows_adapter() -> TypeAdapter[Any]:
    """What checks the rows of a document: each has the columns of its table, with values that every database takes."""
    numbers = TypeAdapter(list[StrictInt])

    def check(text: str) -> str:
        """Return a text if it is a list of numbers. Raises: ValueError."""
        numbers.validate_json(text)
        return text

    words = Annotated[str, Field(pattern=r"^[^\x00]*$")]
    types: Mapping[str, Any] = {"TEXT": words, "BIGINT": StrictInt, "SMALLINT": Literal[0, 1]}
    tables: dict[str, Any] = {}
    for table in _IN_DOCUMENTS:
        fields: dict[str, Any] = {}
        for name, (kind, *more) in columns_of(table).items():
            plain = Annotated[words, AfterValidator(check)] if name in _NUMBERS else types[kind]
            fields[name] = (plain if "NOT" in more else plain | None, ...)
        tables[table] = (list[create_model(table, __config__=_EXACT, **fields)], ())  # type: ignore[misc]
    return TypeAdapter(create_model("rows", __config__=_EXACT, **tables))


_EXACT = ConfigDict(extra="forbid")
_NUMBERS = ("pinned", "nodes", "children")
"""The columns that are lists of numbers."""
_IN_DOCUMENTS = ("messages", "prefixes", "summary_nodes", "runs", "steps", "client_tools", "message_sources")
"""The tables whose rows a document has."""


@contextmanager
def _readable() -> Iterator[None]:
    """Raises: InvalidInput, where texts of rows and settings in a document have another shape than a store's."""
    try:
        yield
    except (StoreDamaged, NotFound, IllegalLog, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput("rows or settings of the snapshot have another form than those of a store") from error


def restore_document(
    tx: Tx, agent_id: AgentId, document: SnapshotDocument, inputs: UnitInputs, *, author: Author, shared: bool
) -> Restored:
    """Restore an agent from a snapshot document, as `restore` does from a stored snapshot.

    Raises: InvalidInput: it is of another agent, or no agent can be so; SnapshotDiffers: the agent's log is another
        one, so nothing is changed; ConversationBusy, NotFound.
    """
    moment = document.moment
    if moment.agent_id != agent_id:
        raise InvalidInput("the snapshot is of another agent: `perdure agent load` makes a new one of it")
    with _readable():
        known = {row["id"] for row in document.rows.get("messages", ())}
        if moment.upto_seq >= tx.messages.next_seq(agent_id) or not known.issuperset(
            row["id"] for row in _rows(tx, moment)["messages"]
        ):
            raise SnapshotDiffers
        restored = restore(tx, moment, inputs, author=author, shared=shared)
        agent = tx.agents.get(agent_id)
        checked: AgentChanges = {"settings": agent.settings, "system": agent.system, "timezone": agent.timezone}
        update_agent(tx, agent_id, checked, author=author, at=inputs.now)
        return restored


def load_document(tx: Tx, document: SnapshotDocument, name: str | None, inputs: UnitInputs, *, author: Author) -> Clone:
    """Make an agent of a snapshot that was one object. Its tools are those of the same names here.

    Raises: InvalidInput: what the document holds is no agent; NameInvalid, AlreadyExists, TooMany; SnapshotDiffers: no
        agent is made.
    """
    with _readable():
        return _make_agent(tx, document, document.name if name is None else name, inputs, author=author)


def _make_agent(tx: Tx, document: SnapshotDocument, name: str, inputs: UnitInputs, *, author: Author) -> Clone:
    """Make an agent of a snapshot that was one object. Raises: as `load_document`, and what `_readable` takes."""
    name_for(tx, name, "refuse", helps=RENAME_HELPS)
    moment, left = document.moment, []
    tools = {tool_name: tx.tools.find_by_name(tool_name) for tool_name in moment.tool_names}
    left += [f"its tool {one} is not here" for one, tool in tools.items() if tool is None]
    model = moment.model if inputs.models.find(moment.model) is not None else (inputs.models.handles() or [""])[0]
    if model != moment.model:
        left.append(f"its model {moment.model} is not here: it has {model}")
    new = NewAgent(
        name=name,
        model=model,
        follows_default=moment.follows_default,
        agent_type=moment.agent_type,
        system=moment.system,
        description=document.description,
        timezone=moment.timezone,
        tools=tuple(one for one, tool in tools.items() if tool is not None),
        settings=moment.settings,
    )
    agent = create_agent(tx, new, ids=inputs.ids, author=author, at=inputs.now)
    ids = NewIds(agent.id, {one.id: derived_id("block", agent.id, one.id) for one in document.blocks})
    for block in document.blocks:
        new_block, new_id = (
            NewBlock(**{name: getattr(block, name) for name in BLOCK_FIELDS}),
            BlockId(ids.blocks[block.id]),
        )
        create_block(tx, new_id, new_block, author=author, at=inputs.now, agent_id=agent.id)
        tx.of(AgentRows).put_version(new_id, block.version)
    _add_rows(tx, agent.id, document, ids)
    copied = moment_of_copy(tx, moment, 0, ids)
    own = replace(
        copied,
        first_seq=min((int(row["seq"] or 0) for row in document.rows.get("messages", ())), default=0),
        gaps=(),
        next_node=_NUMBER_MAX,
        model=model,
        settings=agent.settings,
        tool_ids=[tool.id for tool in tools.values() if tool is not None],
        tool_names=[one for one, tool in tools.items() if tool is not None],
        blocks=[replace(at, isolated=False) for at in copied.blocks],
    )
    tx.of(AgentRows).finish(agent.id, own)
    left += apply_moment(tx, agent.id, own, inputs, author=author, expected=document.request_hash or None)
    return Clone(agent_id=agent.id, name=name, left=left)


def _add_rows(tx: Tx, agent_id: AgentId, document: SnapshotDocument, ids: NewIds) -> None:
    """Add the rows of the document to the log of the new agent, all in its first conversation. Raises: InvalidInput."""
    conversation = tx.conversations.get_by_seq(agent_id, 0)
    for table in _IN_DOCUMENTS:
        rows: Sequence[Row] = [dict(row) for row in document.rows.get(table, ())]
        for row in rows:
            row |= dict.fromkeys(row.keys() & {"conversation_seq", "revision", "removed"}, 0)
        tx.of(AgentRows).add(table, rows, ids, conversation.id)
