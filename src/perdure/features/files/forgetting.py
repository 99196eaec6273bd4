"""Taking a text out of files: it is masked, so that all lines stay where they are."""

from __future__ import annotations

from dataclasses import replace

from perdure.core.errors import NotFound, StoreUnavailable
from perdure.core.forgetting.corrections import CorrectionItem, Key
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import ArchiveId, FileId
from perdure.domain.corrections import checksum, passage_item
from perdure.engine.ports import Ports
from perdure.features.files.file_tables import Files
from perdure.features.files.folder_tables import Folders
from perdure.storage.tx import Tx

PAGE = 200


def still_read(tx: Tx, kind: str, owner_id: str) -> bool:
    """Return whether a file of the folder with this archive is still to be read: its bytes may hold anything."""
    return kind == "archives" and tx.of(Files).has_waiting(ArchiveId(owner_id))


def forget_in_file(tx: Tx, table: str, owner_id: str, seq: int, redactor: Redactor) -> CorrectionItem:
    """Mask what `redactor` finds in one row of `passages` or `file_parts`; return what undoing that needs."""
    if table == "passages":
        (passage,) = tx.passages.list_by_seqs(ArchiveId(owner_id), [seq])
        return passage_item(passage, tx.passages.put(replace(passage, text=redactor.mask([passage.text])[0])))
    file_id = FileId(owner_id)
    text = tx.of(Files).get_part(file_id, seq)
    (masked,) = redactor.mask([text])
    tx.of(Files).put_part(file_id, seq, masked)
    return CorrectionItem(kind="file", id=f"{file_id}:{seq}", before=text, after=checksum(masked))


def restore_file(tx: Tx, item: CorrectionItem) -> str:
    """Put back the text of a part of a file from before it was masked; return why that can't be, or an empty text."""
    file_id, _, seq = item.id.partition(":")
    if checksum(tx.of(Files).get_part(FileId(file_id), int(seq))) != item.after:
        return f"{file_id} was changed again"
    tx.of(Files).put_part(FileId(file_id), int(seq), item.before)
    return ""


def erase_rows(
    tx: Tx, table: str, owner_id: str, redactor: Redactor, after: Key | None
) -> tuple[int, Key | None] | None:
    """Mask a text in the next parts of a file, or passages of a folder, after the key `after`. Return how many changed,
    and the key to continue after (None: the end); None for other tables."""
    if table == "file_parts":
        following = tx.of(Files).mask_parts(FileId(owner_id), redactor, after=-1 if after is None else int(after[0]))
        return 0, None if following is None else (following,)
    if table == "passages" and tx.of(Folders).find_by_archive(ArchiveId(owner_id)) is not None:
        return _mask_passages(tx, ArchiveId(owner_id), redactor, after)
    return None


def _mask_passages(tx: Tx, archive_id: ArchiveId, redactor: Redactor, after: Key | None) -> tuple[int, Key | None]:
    """Mask a text in the next passages of a folder's files, also where it begins in one and ends in the next."""
    passages = tx.passages.page(archive_id, limit=PAGE, above=-1 if after is None else int(after[0]))
    changed = 0
    masked = redactor.mask([one.text for one in passages], between="\n")
    for passage, text in zip(passages, masked, strict=True):
        source, metadata = redactor.redact_fields(dict(passage.source)), redactor.redact_value(dict(passage.metadata))
        if (text, source, metadata) != (passage.text, dict(passage.source), dict(passage.metadata)):
            tx.passages.put(replace(passage, text=text, source=source, metadata=metadata))
            changed += 1
    return changed, (passages[-2].seq,) if len(passages) == PAGE else None


async def drop_object(ports: Ports, table: str, owner_id: str) -> None:
    """Remove the uploaded bytes of a file in which an erased text stood from the object store. Raises: StoreError."""
    if table != "files":
        return
    try:
        file = await ports.store.read(lambda tx: tx.of(Files).get(owner_id))
    except NotFound:  # deleted since; its worker removes the object
        return
    if not file.object_key or file.digest:  # one without a digest has another text than its bytes
        return
    if ports.contents is None:
        raise StoreUnavailable(
            f"the bytes of {file.name!r} are in an object store, and hold the text: set PERDURE_FILES as it was before"
        )
    await ports.contents.delete([file.object_key])
    await ports.store.write(lambda tx: tx.of(Files).forget_object(file.id))
