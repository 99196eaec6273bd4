"""Parse server-sent events (WHATWG HTML, section 9.2) from chunks of bytes."""

from __future__ import annotations

FIELDS = ("data", "event", "id", "retry")


class SseDecoder:
    """Takes chunks and returns the data of complete events, without comments and other fields.

    `strays` counts lines that are no field: an answer of nothing else is no event stream.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of the unfinished line; joined once, at its end
        self._data: list[str] = []
        self.strays = 0

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that this chunk completes, in order."""
        if self._rest and not (b"\n" in chunk or b"\r" in chunk or self._rest[-1].endswith(b"\r")):
            self._rest.append(chunk)
            return []
        text = b"".join((*self._rest, chunk))
        # A CR at the end may be half of a CRLF, so the next chunk decides.
        held = b"\r" if text.endswith(b"\r") else b""
        text = text[: len(text) - len(held)]
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")  # lines are cut before they are decoded: no character is torn
        self._rest = [rest + held] if rest or held else []
        return [data for line in lines if (data := self._line(line)) is not None]

    def end(self) -> list[str]:
        """The data of the last event if no empty line ends it; it can be incomplete."""
        last_line = b"".join(self._rest)
        data = [] if (found := self._line(last_line.rstrip(b"\r"))) is None else [found]
        self._rest = []
        if (last := self._line(b"")) is not None:
            data.append(last)
        return data

    def _line(self, line: bytes) -> str | None:
        """The data of the event if this line ends one."""
        if line.startswith(b":"):
            return None
        if not line:
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        name, _, value = line.decode("utf-8", "replace").removeprefix("\ufeff").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif not any(known.startswith(name) for known in FIELDS):  # the last line may be cut within the name
            self.strays += 1
        return None
