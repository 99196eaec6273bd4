"""Messages to an agent."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from perdure.core.errors import InvalidInput, file_errors
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import ConversationId, RunId
from perdure.core.incoming.bodies import image_type_of
from perdure.core.messages import Image, ImageLink, Text
from perdure.core.runs import IfBusy, RunOptions
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.accept import Accepted
from perdure.library.messages.approval import AsyncApproval
from perdure.library.messages.client_tools import ClientTool, ClientTools, client_tools_of
from perdure.library.messages.reply import Reply
from perdure.library.parts.checks import check_text

Picture = Path | bytes | str
"""A picture: a file, its bytes, or its address, which begins with http:// or https://."""


async def load_images(pictures: Sequence[Picture]) -> tuple[Image | ImageLink, ...]:
    """The pictures as parts of a message. Raises: InvalidInput: a file can't be read, or something is no picture."""
    return tuple([await _load(picture) for picture in pictures])


async def _load(picture: Picture) -> Image | ImageLink:
    """One picture as a part of a message. Raises: InvalidInput."""
    if isinstance(picture, str):
        if picture.startswith(("http://", "https://")):
            return ImageLink(picture)
        raise InvalidInput(f"the image {picture!r:.80} is not an address: give a file as a Path, or its bytes")
    if isinstance(picture, Path):
        with file_errors(f"the image {picture}", "read"):
            data = await asyncio.to_thread(picture.read_bytes)
    elif isinstance(picture, bytes):
        data = picture
    else:
        raise InvalidInput(f"an image is {picture!r:.80}: give a Path, bytes or an address")
    kind = image_type_of(data)
    if kind is None:
        what = picture if isinstance(picture, Path) else f"an image of {len(data):,} bytes"
        raise InvalidInput(f"{what} is not an image that can be shown: give a PNG, JPEG, GIF or WebP")
    return Image(kind, base64.b64encode(data).decode("ascii"))


class SendOptions(TypedDict, total=False):
    """How a message is sent and its run limited; see `AsyncAgent.send`."""

    idempotency_key: str | None
    if_busy: IfBusy
    max_steps: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    model: str | None
    model_reason: str
    tools: Sequence[str] | None
    images: Sequence[Picture]


class AsyncSending(AsyncApproval):
    """Messages to an agent; `AsyncAgent` has these methods."""

    async def send(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        client_tools: Sequence[ClientTool] = (),
        **options: Unpack[SendOptions],
    ) -> Reply:
        """Send a message and wait for the whole reply.

        A reply with the stop reason `requires_approval` is not whole: its `pending` calls wait for `approve`, `deny` or
        `answer`.

        Args:
            conversation: by default the agent's first one.
            client_tools: tools that this program runs, besides the agent's own; they replace tools of the same name.
                This call runs the functions among them, as often as the model calls them.
            options: `idempotency_key`: the same key again is the same message: it is stored once, and its reply is
                returned. `images`: pictures behind the text: files, bytes or addresses. `max_steps`: the most model
                calls of the run; by default the setting. `max_tokens`: the tokens, in and out, after which the run
                makes no other model call; it then ends with `max_tokens_exceeded`; by default as many as agent and
                settings allow. `max_cost_usd`: the same in US dollars, of models with a known price; it ends with
                `insufficient_credits`. `model`: the handle of the model of this run; `model_reason`:
                why it is that one, which is shown with the run. `tools`: the names of the only
                tools that it may call; a call of another one is refused. `if_busy`: whether to wait for the run of this
                conversation to end, the default, or to raise ConversationBusy.
        Raises: EmptyMessage, MessageTooLarge, InvalidInput, NotFound, ConversationBusy, ApprovalPending,
            IdempotencyMismatch; CircularWait: a tool or hook of a run sends it, for whose end the reply would wait;
            StoreError: its text says whether the message is stored;
            RunFailed: the message is stored, but the model could not answer; `reply` holds the answer so far.
        """
        tools = client_tools_of(client_tools) if client_tools else None
        accepted = await self._submit(text, conversation, tools, False, self._app.runner.caller(), **options)
        return await self._reply_to(accepted, tools, conversation)

    async def stream(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        background: bool = False,
        client_tools: Sequence[ClientTool] = (),
        **options: Unpack[SendOptions],
    ) -> AsyncIterator[StoredEvent | Delta]:
        """Send a message and yield the stored events in order, and deltas while the model answers. When a run stops for
        functions among `client_tools`, the events of the run that continues follow. `SendOptions` are as in `send`.

        Leaving the loop early does not stop the run; `cancel` does. A run that fails ends with a `RunEnded` that says
        why. Raises: as `send`, but not RunFailed.
        """
        tools = client_tools_of(client_tools) if client_tools else None
        accepted = await self._submit(text, conversation, tools, background, self._app.runner.caller(), **options)
        async for sent in self._follow(accepted, tools, conversation):
            yield sent

    async def submit(
        self,
        text: str,
        *,
        conversation: ConversationId | None = None,
        background: bool = True,
        client_tools: Sequence[ClientTool] = (),
        **options: Unpack[SendOptions],
    ) -> Accepted:
        """Send a message without waiting; once this returns, it will be answered. `SendOptions`: as in `send`.

        You run the calls of `client_tools`, also those of functions: `pending` lists them.
        """
        tools = client_tools_of(client_tools) if client_tools else None
        return await self._submit(text, conversation, tools, background, None, **options)

    async def _submit(
        self,
        text: str,
        conversation: ConversationId | None,
        client_tools: ClientTools | None,
        background: bool,
        caller: RunId | None,
        *,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
        model: str | None = None,
        model_reason: str = "",
        tools: Sequence[str] | None = None,
        images: Sequence[Picture] = (),
    ) -> Accepted:
        """Store a message with these options, as in `send`, and return its run. `caller`: the run that waits for it."""
        check_text("text", text)
        return await self.send_request(
            RunRequest(
                agent_id=self.id,
                conversation_seq=await self._seq_of(conversation),
                messages=(NewMessage((Text(text), *await load_images(images))),),
                idempotency_key=idempotency_key,
                if_busy=if_busy,
                background=background,
                max_steps=max_steps,
                client_tools=None if client_tools is None else client_tools.shapes,
                options=RunOptions(
                    caller=caller,
                    model=model,
                    model_reason=model_reason,
                    tools=tools,
                    max_tokens=max_tokens,
                    max_cost_usd=max_cost_usd,
                ),
            )
        )
