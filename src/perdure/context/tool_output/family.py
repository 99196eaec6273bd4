"""What a kind of text is: how it is read, written in fewer tokens, and shortened."""

from __future__ import annotations

from typing import Any

from perdure.context.tool_output.constants import SURE_SHARE
from perdure.context.tool_output.shorten import Room


class Family:
    """One kind of text. `encode` and `decode` are inverse; `shorten` leaves out what is typical."""

    name = ""
    note = ""
    repeats = True
    """Whether such texts repeat a form, so that most of it is typical."""
    sure_share = SURE_SHARE
    """A form with at most this share of the text's characters has fewer tokens: they need not be counted."""

    def parse(self, text: str) -> Any | None:
        """Return what the text holds; None: it is of another kind."""
        raise NotImplementedError

    def encode(self, parsed: Any) -> str | None:
        """Return the lossless form; None: there is none."""
        return None

    def decode(self, body: str) -> Any:
        """Undo `encode`. Raises: ValueError: there is no lossless form."""
        raise ValueError(f"a text of the kind {self.name} has no lossless form")

    def equals(self, text: str, parsed: Any, decoded: Any) -> bool:
        """Whether what was decoded is what the text holds."""
        return bool(text == decoded)

    def shorten(self, parsed: Any, room: Room) -> str | None:
        """Return the text with what is always shown; None: nothing can be left out."""
        return None
