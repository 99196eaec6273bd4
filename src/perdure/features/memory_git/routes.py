"""The memory of an agent over git's smart HTTP protocol, at the address where Letta Code looks for it."""

from __future__ import annotations

import zlib
from typing import Annotated, Any, Literal

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import InvalidInput
from perdure.features.memory_git.checks import ALL_BYTES
from perdure.server.wire.http import Router, ThisAgent

router = Router(tags=["memory"])
_BASE = "/v1/git/{agent_id}/state.git"
_Service = Annotated[Literal["git-upload-pack", "git-receive-pack"], Query(description="What the client wants to do.")]
_BINARY: Any = {"schema": {"type": "string", "format": "binary"}, "example": "0000"}
_REFS: dict[int | str, dict[str, Any]] = {
    200: {"content": {f"application/x-git-{kind}-pack-advertisement": _BINARY for kind in ("upload", "receive")}}
}
_PACK: dict[int | str, dict[str, Any]] = {200: {"content": {"application/x-git-upload-pack-result": _BINARY}}}
_REPORT: dict[int | str, dict[str, Any]] = {200: {"content": {"application/x-git-receive-pack-result": _BINARY}}}
_Protocol = Annotated[str, Header(alias="Git-Protocol", max_length=100, description="The protocol that it knows.")]


@router.get(_BASE + "/info/refs", response_class=Response, responses=_REFS)
async def git_refs(agent: ThisAgent, service: _Service = "git-upload-pack", git_protocol: _Protocol = "") -> Response:
    """Tell a client of git which branch there is."""
    data = await agent.memory_git.advertise(service.removeprefix("git-"), git_protocol)
    return _answer(f"{service}-advertisement", data)


@router.post(_BASE + "/git-upload-pack", response_class=Response, responses=_PACK)
async def git_upload_pack(agent: ThisAgent, request: Request, git_protocol: _Protocol = "") -> Response:
    """Send commits to a client of git."""
    data = await agent.memory_git.upload(await _body(request), git_protocol)
    return _answer("git-upload-pack-result", data)


@router.post(_BASE + "/git-receive-pack", response_class=Response, responses=_REPORT)
async def git_receive_pack(agent: ThisAgent, request: Request) -> Response:
    """Turn the commits of a push into versions of the memory."""
    return _answer("git-receive-pack-result", await agent.memory_git.receive(await _body(request)))


async def _body(request: Request) -> bytes:
    """The body, unpacked. Raises: InvalidInput: it is larger than the limit, or can't be unpacked."""
    body = await request.body()
    if request.headers.get("content-encoding", "") not in ("gzip", "x-gzip"):
        return body
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(body, ALL_BYTES)
    except zlib.error:
        raise InvalidInput("the body can't be unpacked: it is no gzip") from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise InvalidInput(f"the body is cut off, or larger than {ALL_BYTES:,} bytes unpacked")
    return data


def _answer(kind: str, data: bytes) -> Response:
    """An answer of git, which nobody may keep."""
    return Response(data, media_type=f"application/x-{kind}", headers={"Cache-Control": "no-cache"})
