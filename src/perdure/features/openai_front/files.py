"""Files that a program sends in a message to an agent, which reads their texts."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.app import App, converter_of
from perdure.core.errors import InvalidInput, PerdureError
from perdure.features.openai_front.bodies import ChatRequest, CompletionMessage


async def with_texts_of_files(app: App, body: ChatRequest) -> ChatRequest:
    """The request with texts in place of the files behind the last answer. Raises: InvalidInput: one can't be read."""
    messages = list(body.messages)
    for place in range(body.newest, len(messages)):
        messages[place] = await _read_files(app, messages[place], place)
    return body.model_copy(update={"messages": messages})


async def _read_files(app: App, message: CompletionMessage, place: int) -> CompletionMessage:
    if isinstance(message.content, str) or not any(one.get("type") == "file" for one in message.content or ()):
        return message
    parts = [
        {"type": "text", "text": await _read(app, one.get("file"), f"messages.{place}")}
        if one.get("type") == "file"
        else one
        for one in message.content or ()
    ]
    return message.model_copy(update={"content": parts})


async def _read(app: App, file: Any, where: str) -> str:
    """The text of a file, below its name. Raises: InvalidInput."""
    found = file if isinstance(file, Mapping) else {}
    name, data = str(found.get("filename") or "file.txt"), str(found.get("file_data") or "")
    try:
        content = base64.b64decode(data.partition(",")[2] if data.startswith("data:") else data, validate=True)
    except ValueError:
        content = b""
    if not content:
        raise InvalidInput(f"{where}: a file is read from its bytes in base64, file_data, not by an id or address")
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(content)
        copy.flush()
        convert = converter_of(app.settings, app.shared.reading)
        try:
            document = await convert(name, Path(copy.name), progress=lambda done, total: None)
        except PerdureError as error:
            raise InvalidInput(f"{where}: {error}") from error
    return f"[file {name}]\n{document.text}"
