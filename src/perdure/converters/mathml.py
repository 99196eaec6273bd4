"""MathML as a line of text: what its author wrote beside it, else a plain reading with fractions, powers and roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_INVISIBLE = str.maketrans("", "", "\u2061\u2062\u2063\u2064")  # operators that are not shown, such as times
_UNREAD = frozenset({"annotation", "annotation-xml", "mphantom"})
_NAMED = frozenset({"mi", "mn", "mo", "ms", "mtext", "mspace", "annotation"})
OPEN_MAX = 100  # how many open elements are looked at for the one that ends


class Formula:
    """The text of a `math` element, put together as its tags come; no tree and no recursion."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self._said = attributes.get("alttext", "").strip()
        self._open: list[tuple[str, Mapping[str, str], list[str]]] = [("math", attributes, [])]

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Open an element."""
        self._open.append((tag, attributes, []))

    def data(self, text: str) -> None:
        """Add text, which stands in the innermost elements only."""
        tag, _, parts = self._open[-1]
        if tag in _NAMED or text.strip():
            parts.append(" ".join(text.translate(_INVISIBLE).split(" ")) if tag == "mtext" else text.strip())

    def end(self, tag: str) -> None:
        """Close an element and those left open in it; one that is not open changes nothing."""
        if any(tag == name for name, _, _ in self._open[max(1, len(self._open) - OPEN_MAX) :]):
            while self._close() != tag:
                pass

    def text(self) -> str:
        """The formula on one line."""
        while len(self._open) > 1:
            self._close()
        return " ".join((self._said or "".join(self._open[0][2])).translate(_INVISIBLE).split())

    def _close(self) -> str:
        """Add the reading of the innermost element to the one around it, and give its name."""
        tag, attributes, parts = self._open.pop()
        if tag == "annotation" and "tex" in attributes.get("encoding", "").lower():
            self._said = self._said or "".join(parts).strip()
        if tag not in _UNREAD:
            self._open[-1][2].append(_reading(tag, attributes, parts))
        return tag


def _reading(tag: str, attributes: Mapping[str, str], parts: Sequence[str]) -> str:
    """The reading of an element by those of its children."""
    match tag, parts:
        case "mfrac", (over, under):
            return f"({over})/({under})"
        case "msup" | "mover", (base, upper):
            return f"{_group(base)}^{_group(upper)}"
        case "msub" | "munder", (base, lower):
            return f"{_group(base)}_{_group(lower)}"
        case "msubsup" | "munderover", (base, lower, upper):
            return f"{_group(base)}_{_group(lower)}^{_group(upper)}"
        case "msqrt", _:
            return f"√({''.join(parts)})"
        case "mroot", (base, degree):
            return f"({base})^(1/{_group(degree)})"
        case "mfenced", _:
            marks = attributes.get("separators", ",").strip()[:1]
            return attributes.get("open", "(") + f"{marks} ".join(parts) + attributes.get("close", ")")
        case "mtable", _:
            return f"[{'; '.join(parts)}]"
        case (("mtr" | "mlabeledtr"), _):
            return ", ".join(parts)
        case "menclose", _ if "strike" in attributes.get("notation", ""):
            return f"~~{''.join(parts)}~~"
    return "".join(parts)


def _group(text: str) -> str:
    """`text` in brackets where it is more than a number or a letter."""
    return text if (text.isalnum() and (text.isdecimal() or len(text) == 1)) or len(text) == 1 else f"({text})"
