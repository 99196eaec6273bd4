"""What a message of Telegram says: its text, its photos, and its files, which the agent gets in a folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import telegram

from perdure.core.errors import AlreadyExists, InvalidInput
from perdure.core.incoming.bodies import image_type_of
from perdure.features.files.folder_service import AsyncFolder
from perdure.features.interfaces.telegram.texts import EDITED, TOO_LARGE
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

Again = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Calls Telegram, and again where the connection broke."""
FILE_BYTES = 20_000_000
"""What the Bot API lets a bot read."""


@dataclass(frozen=True, slots=True)
class MessageContent:
    """What the agent reads of a message."""

    text: str
    images: Sequence[bytes] = ()


async def read_messages(
    messages: Sequence[telegram.Message], perdure: AsyncPerdure, agent: AsyncAgent, again: Again
) -> MessageContent | None:
    """Return the content of an album, or of a single message; None: nothing supported. Raises: as `_read`."""
    found = [await _read(message, perdure, agent, again) for message in messages]
    taken = [one for one in found if one is not None]
    text = "\n\n".join(one.text for one in taken if one.text)
    images = [image for one in taken for image in one.images]
    return MessageContent(text or ("(a photo)" if len(images) == 1 else "(photos)"), images) if taken else None


async def read_edit(message: telegram.Message, again: Again) -> MessageContent | None:
    """Return an edited message's text and photo, None without both. Raises: InvalidInput, TelegramError."""
    images = [await _download(message.photo[-1], again)] if message.photo else []
    text = message.text or message.caption or ("(a photo)" if images else "")
    return MessageContent(EDITED + text, images) if text else None


async def _read(
    message: telegram.Message, perdure: AsyncPerdure, agent: AsyncAgent, again: Again
) -> MessageContent | None:
    """Return the content of a message; None: a kind that is not supported. A file is put into a folder of the agent.
    `again` calls Telegram, with retries. Raises: InvalidInput: a file is too large or unsupported; TelegramError."""
    text = message.text or message.caption or ""
    if message.photo:
        image = await _download(message.photo[-1], again)
        return MessageContent(text, [image])
    if message.document is None:
        return MessageContent(text) if text.strip() else None
    data, name = await _download(message.document, again), PurePath(message.document.file_name or "").name or "file"
    if image_type_of(data) is not None:
        return MessageContent(text or f"(the picture {name})", [data])
    folder = await _open_folder(perdure, agent)
    file = await folder.upload(data, name=name, original_name=name, if_exists="suffix")
    return MessageContent(f"{text}\n\n(the file {file.name} is in the folder {folder.name})".strip())


async def _download(file: telegram.PhotoSize | telegram.Document, again: Again) -> bytes:
    """Return the bytes of a file. Raises: InvalidInput, TelegramError."""
    if (file.file_size or 0) > FILE_BYTES:
        raise InvalidInput(TOO_LARGE)
    found = await again(file.get_file)
    return bytes(await again(found.download_as_bytearray))


async def _open_folder(perdure: AsyncPerdure, agent: AsyncAgent) -> AsyncFolder:
    """Return the folder for files of chats with this agent, which has it; it is made with the first one."""
    name = f"telegram {agent.id}"
    with suppress(AlreadyExists):
        await perdure.folders.create(name, description=f"Files that people sent to {agent.name} in Telegram.")
    await agent.files.attach(name)  # as it may have been detached, or this process killed before it was attached
    return await perdure.folders.get(name)
