"""Finds where a text stands that an agent is to forget."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.corrections import Key, Place
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, ArchiveId, BlockId, MessageId, PassageId, is_id
from perdure.core.messages import Message, parts_to_json, text_without_images
from perdure.domain.archives.passages import get_passage
from perdure.domain.texts import keepers
from perdure.engine.ports import Ports
from perdure.features.origins.mentions import TEXT_TABLES, TextMentions
from perdure.features.origins.tables import Erasures
from perdure.features.origins.values import IN_VIEW, ForgetPreview, MatchedRow, Mention
from perdure.storage.tx import Tx

PAGE = 500
MENTIONS_MAX = 200
"""The most mentions that a preview shows."""
EXCERPT_CHARS = 120
ID_CHARS_MIN = 8
"""The fewest characters of a text that is named by an id: a shorter one stands in too many places."""

Progress = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and how much there is to do."""


@dataclass(frozen=True, slots=True)
class TextLocation:
    """A row of a table in which the text was found, with its owner and key, and how it is shown to people."""

    table: str
    owner_id: str
    key: Key
    mention: Mention


def resolve_text(tx: Tx, agent_id: AgentId, text_or_id: str) -> str:
    """Return the text to forget: a text as it is, or that of the message or passage of an id. Raises: NotFound;
    InvalidInput: it is too short, or the id of a block."""
    tx.agents.model(agent_id)
    if is_id("message", text_or_id):
        message = tx.messages.get(MessageId(text_or_id))
        if message.agent_id != agent_id:
            raise NotFound("message", text_or_id)
        text = text_without_images(message.parts)
        if len(text.strip()) >= ID_CHARS_MIN and not Redactor(text).finds(parts_to_json(message.parts)):
            raise InvalidInput(f"{text_or_id} has several texts: give the words of each instead")
    elif is_id("passage", text_or_id):
        text = get_passage(tx, agent_id, PassageId(text_or_id)).text
    elif is_id("block", text_or_id):
        raise InvalidInput(f"{text_or_id} is a whole block: give the text of a line in it, or delete the block")
    else:
        return Redactor(text_or_id).text
    if len(text.strip()) < ID_CHARS_MIN:
        raise InvalidInput(f"{text_or_id} says {text!r}, which is too short to look for everywhere: give a longer text")
    return Redactor(text).text


async def find_mentions(
    ports: Ports, agent_id: AgentId, text_or_id: str, *, progress: Progress = lambda what, done, total: None
) -> ForgetPreview:
    """Find all rows of an agent and its memory that hold a text. Raises: NotFound, InvalidInput: as `resolve_text`."""
    text = await ports.store.read(resolve_text, agent_id, text_or_id)
    counts: Counter[Place] = Counter()
    first: dict[bool, list[Mention]] = {True: [], False: []}
    shared: dict[AgentId, None] = {}
    async for spots in scan(ports, agent_id, Redactor(text), progress=progress):
        for spot in spots:
            counts[spot.mention.place] += 1
            shown = first[spot.mention.place in IN_VIEW]
            if len(shown) < MENTIONS_MAX:
                shown.append(spot.mention)
        for table, owner_id in dict.fromkeys((TEXT_TABLES[spot.table].owners, spot.owner_id) for spot in spots):
            if table != "agents":
                shared |= dict.fromkeys(
                    await ports.store.read(lambda tx, *owner: tx.owners.list_agents(*owner), table, owner_id)
                )
    shared.pop(agent_id, None)
    mentions = (first[True] + first[False])[:MENTIONS_MAX]
    unended = await ports.store.read(lambda tx: tx.of(Erasures).list_unended(agent_id, limit=1))
    return ForgetPreview(text, dict(counts), mentions, tuple(shared), bool(unended))


async def scan(
    ports: Ports,
    agent_id: AgentId,
    redactor: Redactor,
    *,
    places: Sequence[Place] | None = None,
    progress: Progress = lambda what, done, total: None,
) -> AsyncIterator[Sequence[TextLocation]]:
    """Yield the rows that contain the text of `redactor`, page by page; `places`: search only these."""
    owners = await ports.store.read(lambda tx: tx.owners.list(agent_id))
    targets = targets_of([*owners, ("agents", agent_id)])
    if places is not None:
        wanted = {"message_revisions", *(name for name, one in TEXT_TABLES.items() if one.place in places)}
        targets = [target for target in targets if target[0] in wanted]
    for done, (table, owner_id) in enumerate(targets):
        progress("looking", done, len(targets))
        after: Key | None = None
        while True:
            spots, after = await ports.store.read(_scan_page, table, owner_id, redactor, after)
            yield [spot for spot in spots if places is None or spot.mention.place in places]
            if after is None:
                break
    progress("looking", len(targets), len(targets))


def targets_of(owners: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """List (table, owner's id) of all tables with texts of these owners (kind, id), in the order of `TEXT_TABLES`."""
    kinds = [one.owners for one in TEXT_TABLES.values()]
    own = sorted(owners, key=lambda owner: kinds.index(owner[0]))
    return [(table, id_) for kind, id_ in own for table, one in TEXT_TABLES.items() if one.owners == kind]


def _scan_page(
    tx: Tx, table: str, owner_id: str, redactor: Redactor, after: Key | None
) -> tuple[Sequence[TextLocation], Key | None]:
    """The spots in the next rows of an owner, and where to go on; None: the end."""
    page = tx.of(TextMentions).scan(table, owner_id, redactor, after=after, limit=PAGE)
    messages: Mapping[int, Message] = {}
    if table in ("messages", "message_revisions") and page.found:
        seqs = sorted({int(found.key[0]) for found in page.found})
        messages = {message.seq: message for message in tx.messages.list_by_seqs(AgentId(owner_id), seqs)}
    spots = [
        TextLocation(table, owner_id, found.key, _mention(tx, table, owner_id, found, redactor, messages))
        for found in page.found
    ]
    return spots, page.after


def _mention(
    tx: Tx, table: str, owner_id: str, found: MatchedRow, redactor: Redactor, messages: Mapping[int, Message]
) -> Mention:
    """Describe a row that was found: its place, id, name, and an excerpt. `messages`: those of such rows, by number."""
    place = TEXT_TABLES[table].place
    id_, name = owner_id, ""
    kept = next(filter(None, (keeper.describe(tx, table, owner_id, found.key) for keeper in keepers())), None)
    match table:
        case _ if kept is not None:
            place, id_, name = kept[0] or place, kept[1], kept[2]
        case "blocks":
            block = tx.blocks.get(BlockId(owner_id))
            name = block.label
            if not redactor.finds(block.value):
                place = "settings"
        case "block_versions":
            version = int(found.key[0])
            name = f"{tx.blocks.version(BlockId(owner_id), version).label}, version {version}"
        case "passages":
            passage = tx.passages.list_by_seqs(ArchiveId(owner_id), [int(found.key[0])])[0]
            id_, name = passage.id, tx.archives.get(passage.archive_id).name
            if tx.archives.find_owner(passage.archive_id) is not None:
                place = "file"
        case _ if TEXT_TABLES[table].owners != "agents":
            name = tx.of(TextMentions).name_of(table, owner_id)
        case "messages" | "message_revisions":
            seq, revision = int(found.key[0]), int(found.key[1]) if len(found.key) > 1 else 0
            message = messages.get(seq)
            place, name = "earlier_message", f"message {seq}"
            if message is not None:
                id_, name = message.id, message.role if message.kind == "message" else message.kind
                parts = parts_to_json(message.parts)
                is_said = redactor.redact_parts(parts) != parts or redactor.finds(message.name)
                if message.revision == revision and is_said:
                    place = "message"
        case "summary_nodes":
            id_ = f"{found.key[0]}:{found.key[1]}"
    texts = list(found.texts.values())
    if place == "message":
        texts.insert(0, messages[int(found.key[0])].text)
    text = next(filter(redactor.finds, texts), "")
    return Mention(place, id_, name, redactor.excerpt(text) or texts[0][:EXCERPT_CHARS])
