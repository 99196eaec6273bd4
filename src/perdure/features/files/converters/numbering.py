"""Numbers of lists and headings: the forms that they have, and those that Word shows in a DOCX."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

_BEGIN, _END = "\ufdd0", "\ufdd1"  # around a mark: Unicode has no characters there
_MARK = re.compile(f"(<li>)?{_BEGIN}([^{_BEGIN}{_END}]*){_END}")
_ROMAN = {1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl", 10: "x"}
_ROMAN |= {9: "ix", 5: "v", 4: "iv", 1: "i"}
_LIST_FORM = re.compile("[a-z]+(?:-[a-z]+){1,2}|none|decimal|disc|circle|square")
_CHINESE = re.compile("chinese|japanese|taiwanese|ideographDigital|cjk|.*-chinese-")

LEVELS, STYLES_DEEP = 9, 20
"""How many levels of a list Word has, and how many styles one may rest on here."""
LABEL_CHARS = 100
"""The longest number of a paragraph, with the text around it."""


def whole_number(text: str | None) -> int | None:
    """A small whole number in an attribute; None: there is none."""
    return int(text) if text and re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", text) else None


def number_text(number: int, form: str) -> str:
    """A number of a list in a form that Word, CSS or HTML (`a`, `A`, `i`, `I`) names; digits in any other."""
    if form.startswith("upper") or form in ("A", "I"):
        return number_text(number, form.replace("upper", "lower") if len(form) > 1 else form.lower()).upper()
    if form in ("lowerLetter", "lower-alpha", "lower-latin", "a") and number > 0:
        before, at = divmod(number - 1, 26)
        if form == "lowerLetter":  # z, aa, bb; on pages z, aa, ab
            return "abcdefghijklmnopqrstuvwxyz"[at] * min(before + 1, 40)
        return (number_text(before, form) if before else "") + "abcdefghijklmnopqrstuvwxyz"[at]
    if form in ("lowerRoman", "lower-roman", "i") and 0 < number < 4_000:
        text = ""
        for value, sign in _ROMAN.items():
            text, number = text + number // value * sign, number % value
        return text
    if form == "decimalEnclosedCircle" and 0 < number <= 20:
        return chr(ord("①") + number - 1)
    if _CHINESE.match(form) and 0 < number < 100:
        tens, ones = ("零一二三四五六七八九"[digit] for digit in divmod(number, 10))
        return f"{tens if number >= 20 else ''}{'十' if number >= 10 else ''}{ones}".removesuffix("零")
    return f"{number:02}" if form in ("decimalZero", "decimal-leading-zero") else str(number)


def list_form(attributes: Mapping[str, str]) -> str:
    """The form of a list's numbers by its attributes, `none` for signs; empty: they do not say."""
    form = attributes.get("type", "").strip()
    for declaration in attributes.get("style", "").lower().split(";"):
        name, _, value = declaration.partition(":")
        if name.strip() in ("list-style", "list-style-type"):
            forms = [word for word in value.replace("!", " ").split() if _LIST_FORM.fullmatch(word)]
            form = next((word for word in forms if word != "none"), *forms[:1] or [form])
    return "none" if form.lower() in ("disc", "circle", "square") else form


def with_numbers(markup: str) -> str:
    """HTML with each mark that `Numbering` put in as the number of its item, or as text if it is in no list."""
    return _MARK.sub(
        lambda found: f'<li data-number="{found[2] or "-"}">' if found[1] else f"{found[2]} ".lstrip(), markup
    )


class Numbering:
    """The lists of a DOCX, and how far each has been counted."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        lists, styles = (
            ElementTree.fromstring(archive.read(part)) if part in archive.namelist() else ElementTree.Element(part)
            for part in ("word/numbering.xml", "word/styles.xml")
        )
        self._styles = {_value(one, "", "styleId"): one for one in styles.iterfind("{*}style")}
        abstract = {_value(one, "", "abstractNumId"): one for one in lists.iterfind("{*}abstractNum")}
        nums = {_value(one, "", "numId"): one for one in lists.iterfind("{*}num")}
        # Number of a list -> the name of those that are counted together, its levels, first numbers that are its own.
        self.lists: dict[str, tuple[str, dict[int, ElementTree.Element], dict[int, int]]] = {}
        self._of_styles: dict[tuple[str, str], int] = {}  # list, style of a paragraph -> level
        self._counts: dict[str, dict[int, int]] = {}
        self._begun: set[tuple[str, int]] = set()
        for number, num in nums.items():
            name = _value(num, "abstractNumId")
            if (style := self._styles.get(_value(abstract.get(name), "numStyleLink"))) is not None:
                name = _value(nums.get(_value(style, "pPr numPr numId")), "abstractNumId")
            own = num.findall("{*}lvlOverride")
            found = map(_with_place, [*abstract.get(name, ()), *(one for all_of in own for one in all_of)])
            levels = {at: level for at, level in found if at in range(LEVELS)}
            starts = {at: _whole(one, "startOverride", -1) for at, one in map(_with_place, own)}
            self.lists[number] = (name, levels, starts)
            self._of_styles |= {(number, _value(level, "pStyle")): at for at, level in levels.items()}

    def mark(self, root: ElementTree.Element) -> None:
        """Put its number before the text of each paragraph that Word shows numbered."""
        word = root.tag.rpartition("}")[0] + "}"
        for paragraph in _paragraphs(root):
            properties = paragraph.find(f"{word}pPr")
            number, level = self._place(properties)
            if properties is None or number not in self.lists:
                continue
            if (label := self._next(number, level)) is not None:
                run = ElementTree.Element(f"{word}r")
                ElementTree.SubElement(run, f"{word}t").text = f"{_BEGIN}{label}{_END}"
                paragraph.insert(list(paragraph).index(properties) + 1, run)
            own = properties.find(f"{word}numPr")
            if own is None:  # mammoth does not look for the list of a style
                own = ElementTree.SubElement(properties, f"{word}numPr")
            own[:] = [
                ElementTree.Element(f"{word}{name}", {f"{word}val": value})
                for name, value in (("ilvl", str(level)), ("numId", number))
            ]

    def _place(self, properties: ElementTree.Element | None) -> tuple[str, int]:
        """Return the list and level of a paragraph, from itself or its style; an empty name: it is in no list."""
        number, level = _value(properties, "numPr numId"), _whole(properties, "numPr ilvl", -1)
        style = _value(properties, "pStyle")
        for _ in range(STYLES_DEEP):
            if number or style not in self._styles:
                break
            number = _value(self._styles[style], "pPr numPr numId")
            if number and level < 0:
                level = self._of_styles.get((number, style), _whole(self._styles[style], "pPr numPr ilvl", 0))
            style = _value(self._styles[style], "basedOn")
        return number, max(level, 0)

    def _next(self, number: str, level: int) -> str | None:
        """Count one more paragraph of a list, and return the number that Word shows; None: a bullet or nothing."""
        name, levels, starts = self.lists[number]
        if level not in levels:
            return None
        counts = self._counts.setdefault(name, {})
        if starts.get(level, -1) >= 0 and (number, level) not in self._begun:
            self._begun.add((number, level))
            counts.pop(level, None)
        first = {at: starts[at] if starts.get(at, -1) >= 0 else _whole(one, "start", 1) for at, one in levels.items()}
        counts[level] = counts.get(level, first[level] - 1) + 1
        for below in [at for at in counts if level < at and level < _whole(levels.get(at), "lvlRestart", at)]:
            del counts[below]
        has_digits = levels[level].find("{*}isLgl") is not None

        def shown(found: re.Match[str]) -> str:
            """Return the number of one level as text."""
            at = int(found[1]) - 1
            form = "" if has_digits and at != level else _value(levels.get(at), "numFmt")
            return number_text(counts.get(at, first.get(at, 1)), form)

        around = levels[level].find("{*}lvlText")
        text = f"%{level + 1}." if around is None else _value(around, "")
        is_sign = _value(levels[level], "numFmt") == "bullet"
        return None if is_sign else " ".join(re.sub("%([1-9])", shown, text).split())[:LABEL_CHARS]


def _value(element: ElementTree.Element | None, path: str, name: str = "val") -> str:
    """Return an attribute of the first element at a path; empty: there is none."""
    for step in path.split():
        element = None if element is None else element.find(f"{{*}}{step}")
    attributes = {} if element is None else element.attrib
    return next((value for key, value in attributes.items() if key.rpartition("}")[2] == name), "")


def _whole(element: ElementTree.Element | None, path: str, default: int, name: str = "val") -> int:
    """An attribute of the first element at a path as a whole number; `default`: there is none."""
    number = whole_number(_value(element, path, name))
    return default if number is None else number


def _with_place(level: ElementTree.Element) -> tuple[int, ElementTree.Element]:
    """A level, or changes of one, after its number; -1: it is something else."""
    is_level = level.tag.endswith(("}lvl", "}lvlOverride"))
    return _whole(level, "", 0, "ilvl") if is_level else -1, level


def _paragraphs(root: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The paragraphs of a part in order, without those that were taken out, and what mammoth reads in another form."""
    left = [root]
    while left:
        element = left.pop()
        name = element.tag.rpartition("}")[2]
        if name != "Choice":
            left.extend(reversed(element))
            marks = element.find("{*}pPr/{*}rPr") if name == "p" else None
            if name == "p" and (marks is None or not any(mark.tag.endswith(("}del", "}moveFrom")) for mark in marks)):
                yield element
