"""A stand-in for Telegram's Bot API, as an application without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import telegram
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from telegram.request import HTTPXRequest

TOKEN = "123:abc"
BOT = {"id": 123, "is_bot": True, "first_name": "Perdure", "username": "perdure_bot"}


class BotApi:
    """Keeps updates until they are confirmed by a later offset, and what the bot sent.

    Args:
        refusals: the next answers, each a status and a body, before others; as those of a limit of requests.
    """

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.edited: list[dict[str, Any]] = []
        self.answered: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.refusals: list[tuple[int, Mapping[str, Any]]] = []
        self._count = 0
        paths = [
            Route("/bot{token}/{method}", self._call, methods=["POST"]),
            Route("/file/bot{token}/{name}", self._file),
        ]
        self.app = Starlette(routes=paths)

    def bot(self) -> telegram.Bot:
        """A client of this API."""
        transport = {"transport": httpx.ASGITransport(self.app)}
        requests = [HTTPXRequest(connection_pool_size=64, httpx_kwargs=transport) for _ in range(2)]
        return telegram.Bot(
            TOKEN,
            base_url="http://telegram.test/bot",
            base_file_url="http://telegram.test/file/bot",
            request=requests[0],
            get_updates_request=requests[1],
        )

    def say(self, text: str, *, chat: int = 1, user: int | None = None, kind: str = "message", **fields: Any) -> int:
        """A user writes in a chat, or with the kind `edited_message` changes what they wrote; return the number of the
        update."""
        sender = self._user(user or chat)
        message = {"message_id": self._next(), "date": 1, "chat": self._chat(chat), "from": sender, **fields}
        if text:
            message["text"] = text
        return self._add({kind: message})

    def press(self, data: str, *, chat: int = 1, user: int | None = None) -> int:
        """A user presses a button below the newest message of a chat."""
        sender, message = self._user(user or chat), [one for one in self.sent if one["chat_id"] == chat][-1]
        shown = {"message_id": message["message_id"], "date": 1, "chat": self._chat(chat), "text": message["text"]}
        query = {"id": str(self._next()), "from": sender, "chat_instance": "1", "data": data, "message": shown}
        return self._add({"callback_query": query})

    def texts(self, chat: int = 1) -> list[str]:
        """What the bot said in a chat."""
        return [one["text"] for one in self.sent if one["chat_id"] == chat]

    async def until(self, condition: Any) -> None:
        """Wait until something holds, at most 20 s."""
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _add(self, update: Mapping[str, Any]) -> int:
        number = self._next()
        self.updates.append({"update_id": number, **update})
        return number

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _user(self, number: int) -> dict[str, Any]:
        return {"id": number, "is_bot": False, "first_name": f"User {number}", "username": f"user{number}"}

    def _chat(self, number: int) -> dict[str, Any]:
        return {"id": number, "type": "private", "first_name": f"User {number}"}

    async def _file(self, request: Request) -> Response:
        return Response(self.files[request.path_params["name"]])

    async def _call(self, request: Request) -> Response:
        fields: dict[str, Any] = dict(await request.form())
        method = request.path_params["method"]
        if self.refusals and method != "getUpdates":
            status, body = self.refusals.pop(0)
            return JSONResponse({"ok": False, **body}, status)
        if request.path_params["token"] != TOKEN:
            return JSONResponse({"ok": False, "error_code": 401, "description": "Unauthorized"}, 401)
        return JSONResponse({"ok": True, "result": await getattr(self, f"_{method}")(fields)})

    async def _getMe(self, fields: Mapping[str, Any]) -> Any:
        return BOT

    async def _getUpdates(self, fields: Mapping[str, Any]) -> Any:
        offset = int(fields.get("offset") or 0)
        self.updates = [one for one in self.updates if one["update_id"] >= offset]
        for _ in range(20):
            if self.updates:
                break
            await asyncio.sleep(0.01)
        return self.updates[:100]

    async def _sendMessage(self, fields: Mapping[str, Any]) -> Any:
        if len(str(fields["text"]).encode("utf-16-le")) > 2 * 4096:
            raise AssertionError("the message is too long")
        sent = {**fields, "chat_id": int(fields["chat_id"]), "message_id": self._next()}
        self.sent.append(sent)
        return {"message_id": sent["message_id"], "date": 1, "chat": self._chat(sent["chat_id"]), "text": sent["text"]}

    async def _editMessageText(self, fields: Mapping[str, Any]) -> Any:
        self.edited.append(dict(fields))
        return True

    async def _answerCallbackQuery(self, fields: Mapping[str, Any]) -> Any:
        self.answered.append(dict(fields))
        return True

    async def _sendChatAction(self, fields: Mapping[str, Any]) -> Any:
        return True

    async def _getFile(self, fields: Mapping[str, Any]) -> Any:
        name = str(fields["file_id"])
        return {"file_id": name, "file_unique_id": name, "file_path": name}
