"""Files that a program sends in a message to an agent, which reads their texts."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.app import App, converter_of
from perdure.core.errors import InvalidInput, PerdureError
from perdure.features.openai_front.bodies import ChatRequest


async def with_texts_of_files(app: App, body: ChatRequest) -> ChatRequest:
    """The request with texts in place of the files behind the last answer. Raises: InvalidInput: one can't be read."""
    messages = list(body.messages)
    for place in range(body.newest, len(messages)):
        parts = messages[place].content
        if parts and not isinstance(parts, str) and any(one.get("type") == "file" for one in parts):
            read = [await _read(app, one, f"messages.{place}") for one in parts]
            messages[place] = messages[place].model_copy(update={"content": read})
    return body.model_copy(update={"messages": messages})


async def _read(app: App, part: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """A part of a message; a file as its text, below its name. Raises: InvalidInput."""
    if part.get("type") != "file":
        return part
    file = part.get("file")
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
    return {"type": "text", "text": f"[file {name}]\n{document.text}"}
