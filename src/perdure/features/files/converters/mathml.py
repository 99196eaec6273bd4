"""MathML and Office's equations as a line of text: what an author wrote beside one, else a plain reading."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from xml.etree.ElementTree import Element

# Operators that are not shown: function, times, comma, plus.
_INVISIBLE = str.maketrans({"\u2061": "", "\u2062": "", "\u2063": ",", "\u2064": "+"})
_TIMES = re.compile(r"\u2062(?=\(?\d)")
_SPACE = re.compile(r"\u2061(?![(\[]|$)|\u2062(?=[^\W\d_]{2})")
_BEFORE = "\x02"  # between the scripts behind a sign and those before it
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
            parts.append(text if tag == "mtext" else text.strip())

    def end(self, tag: str) -> None:
        """Close an element and all left open inside it; ignore an element that is not open."""
        if any(tag == name for name, _, _ in self._open[max(1, len(self._open) - OPEN_MAX) :]):
            while self._close() != tag:
                pass

    def text(self) -> str:
        """Return the formula on one line."""
        while len(self._open) > 1:
            self._close()
        return " ".join(self._said.translate(_INVISIBLE).split()) or _line("".join(self._open[0][2]))

    def _close(self) -> str:
        """Add the reading of the innermost element to the one around it, and give its name."""
        tag, attributes, parts = self._open.pop()
        if tag == "annotation" and "tex" in attributes.get("encoding", "").lower():
            self._said = self._said or "".join(parts).strip()
        if tag not in _UNREAD:
            self._open[-1][2].append(_reading(tag, attributes, parts))
        return tag


def _reading(tag: str, attributes: Mapping[str, str], parts: Sequence[str]) -> str:
    """The text of an element of MathML; `parts` are the texts of its children."""
    match tag, parts:
        case "mfrac", (over, under):
            return f"({over})/({under})"
        case "msup" | "mover", (base, upper):
            return group(base) + _scripts("", upper)
        case "msub" | "munder" | "msubsup" | "munderover" | "mmultiscripts", (base, *scripts):
            at = scripts.index(_BEFORE) if _BEFORE in scripts else len(scripts)
            return _scripts(*scripts[at + 1 :]) + group(base) + _scripts(*scripts[:at])
        case "mprescripts", _:
            return _BEFORE
        case "msqrt", _:
            return f"√({''.join(parts)})"
        case "mroot", (base, degree):
            return f"({base})^(1/{group(degree)})"
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


def _scripts(*texts: str) -> str:
    """Texts that stand lower, higher, lower and so on, each with its sign, `_` or `^`."""
    return "".join(sign + group(text) for text, sign in zip(texts, cycle("_^")) if text)


def group(text: str) -> str:
    """`text` in brackets where it is more than a number or a letter."""
    return text if text.isdecimal() or len(text) < 2 else f"({text})"


def _line(text: str) -> str:
    """Return `text` on one line, with a space between a power or index and the text after it."""
    text = _SPACE.sub(" ", _TIMES.sub("·", text)).translate(_INVISIBLE)
    return " ".join(_SCRIPT.sub(r"\1 ", text).split())


_SCRIPT = re.compile(r"([_^](?:\d+(?=[^\W\d_])|[^\W\d_](?=\w)))")
_AS_MATHML = {
    **{"f": "mfrac", "sSup": "msup", "sSub": "msub", "sSubSup": "msubsup", "limLow": "munder", "limUpp": "mover"},
    **{"d": "mfenced", "m": "mtable", "mr": "mtr", "eqArr": "mtable"},
}
_PLAIN = frozenset(
    ("oMath", "r", "box", "borderBox", "groupChr", "bar", "phant", "e", "num", "den", "sub", "sup", "deg", "lim")
) | {"fName", "ins", "sdt", "sdtContent", "smartTag"}


def office_formula(element: Element, unknown: set[str]) -> str:
    """The formula in an `oMath` element on one line. Names of elements that are not known are added to `unknown`."""
    return _line(_office(element, unknown))


def _office(element: Element, unknown: set[str]) -> str:
    """The text of an element of Office's mark-up; names of unknown elements are added to `unknown`."""
    name = _name(element)
    if name == "t":
        return element.text or ""
    if name in {"del", "moveFrom"}:
        return ""
    settings = {
        _name(one): next((value for key, value in one.attrib.items() if key.endswith("val")), "")
        for child in element
        if _name(child).endswith("Pr")
        for one in child
    }
    parts = {child: _office(child, unknown) for child in element if not _name(child).endswith("Pr")}
    by_name = {_name(child): text for child, text in parts.items()}
    inner = by_name.get("e", "")
    match name:
        case "rad":
            degree = by_name.get("deg")
            return _reading("mroot", {}, (inner, degree)) if degree else _reading("msqrt", {}, (inner,))
        case "nary" | "sPre":
            scripts = _scripts(by_name.get("sub", ""), by_name.get("sup", ""))
            return f"{settings.get('chr', '∫')}{scripts} {inner}" if name == "nary" else f"{scripts}{inner}"
        case "func" | "oMathPara":
            return " ".join(parts.values())
        case "acc":
            return inner + settings.get("chr", "\u0302")
    attributes = {"separators": settings.get("sepChr", "|")}
    attributes |= {"open": settings.get("begChr", "("), "close": settings.get("endChr", ")")}
    if name not in _AS_MATHML and name not in _PLAIN:
        unknown.add(name)
    return _reading(_AS_MATHML.get(name, ""), attributes, list(parts.values()))


def _name(element: Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]
