"""Fit a model's arguments to a tool's schema, where that loses nothing.

Accepted beyond exact values: "5" and 5.0 for 5; "true" for true, 0 and 1 for a boolean; 5 for "5"; "0.5" for 0.5; a
JSON text for the object or list in it; one value for a list of it, if it fits the list's items; null for an optional
argument. Refused, because it would lose or invent something: "5.5" for an integer, a float beyond 2**53 for one, digits
that a float does not keep, a float or a boolean for a text, "yes" for true, an unknown name, a repeated name.

These keywords of a schema count: $ref, anyOf, oneOf (and its discriminator), allOf, type, enum, const, properties,
required, additionalProperties, items, prefixItems, minItems, maxItems, uniqueItems, minimum, maximum, exclusiveMinimum,
exclusiveMaximum, multipleOf, minLength, maxLength and the formats of our own schemas. `pattern` does not: a foreign one
may take for ever.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from itertools import chain, repeat
from typing import Any, NoReturn
from uuid import UUID

from perdure.core.errors import DataTooLarge, InvalidArguments
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.core.tools.schema import resolve

EXACT_FLOAT = 2**53
"""Floats represent every whole number below this."""

TRIES = 20_000
"""The most parts of a schema that one call may visit: unions of unions could take for ever."""

PROBLEMS_SHOWN = 5

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBER_CHARS = 400


def parse_arguments(tool: str, schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Parse a model's JSON arguments and fit them to the schema; an empty text means no arguments. Raises:
    InvalidArguments: no JSON object, or an argument that is missing, unknown or does not fit."""
    if not text.strip():
        return fit_arguments(tool, schema, {})
    try:
        arguments = read_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(tool, _unreadable(text, error)) from error
    return fit_arguments(tool, schema, arguments)


def fit_arguments(tool: str, schema: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    """Fit parsed arguments to the schema. Raises: InvalidArguments."""
    if not isinstance(arguments, Mapping):
        raise InvalidArguments(tool, f"a JSON object was expected, not {_describe(arguments)}")
    try:
        fitted: dict[str, Any] = _SchemaFitter(schema).object("", schema, _json_values(arguments, ""), False)
    except _ValueMismatch as misfit:
        more = len(misfit.problems) - PROBLEMS_SHOWN
        text = "; ".join(misfit.problems[:PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise InvalidArguments(tool, text) from None
    except _TriesExhausted:
        problem = "the tool's schema can be read in too many ways for these arguments: simplify them"
        raise InvalidArguments(tool, problem) from None
    except RecursionError:
        raise InvalidArguments(tool, "they are nested too deep") from None
    except Exception as error:  # a schema that makes no sense: a call never ends a run
        problem = f"they can't be checked by the tool's schema ({type(error).__name__}: {error!s:.200})"
        raise InvalidArguments(tool, problem) from error
    return fitted


def _json_values(value: Any, path: str) -> Any:
    """Return the value at `path`, such as `items[0].name`, in JSON's types. Raises: _ValueMismatch, RecursionError."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        _check_size(path, value)
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise _ValueMismatch(f"{path or 'they'} must have names that are texts, not {_describe(name)}")
        return {name: _json_values(item, _argument_path(path, name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_values(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise _ValueMismatch(f"{path!r} must be a value that JSON has, not a {type(value).__name__}")


def _check_size(path: str, value: int | float) -> None:
    """Check that JSON and a float can hold the number. Raises: _ValueMismatch."""
    try:
        if math.isfinite(value):
            return
    except OverflowError:
        pass
    if isinstance(value, float):
        raise _ValueMismatch(f"{path!r} must be a number that JSON has, not {value}")
    raise _ValueMismatch(f"{path!r} must be a number of at most {sys.float_info.max:.4g}; this number is too large")


ARGUMENTS = JsonLimits(size_bytes=8 << 20, depth=1_000, containers=20_000)
"""The limits of a call's arguments: each byte of JSON can become 300 bytes of objects."""


def read_json(text: str) -> Any:
    """Parse JSON. Raises: RecursionError; ValueError: no JSON, NaN, a repeated name; DataTooLarge, a ValueError."""
    check_json(text.encode("utf-8", "surrogatepass"), ARGUMENTS)

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        """The object of these members. Raises: ValueError: a name occurs twice."""
        values = dict(members)
        if len(values) < len(members):
            twice = next(name for name, count in Counter(name for name, _ in members).items() if count > 1)
            raise ValueError(f"{twice!r} is given twice in one object")
        return values

    def number(text: str) -> float:
        """The float of a JSON number. Raises: ValueError: it would be infinite."""
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"the number {text[:40]} is too large")
        return value

    return json.loads(text, object_pairs_hook=pairs, parse_constant=refuse_constant, parse_float=number)


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which are Python's, not JSON's. Raises: ValueError."""
    raise ValueError(f"{name} is not JSON")


def unwrap_arguments(text: str) -> str:
    """Return arguments as a JSON object, if they are one in a JSON string; anything else as it is."""
    if not text.lstrip().startswith('"'):
        return text
    try:
        inner = read_json(text)
    except (ValueError, RecursionError):
        return text
    return inner if isinstance(inner, str) and inner.lstrip().startswith("{") else text


def _unreadable(text: str, error: Exception) -> str:
    """Return what is wrong with a JSON text, in words."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, DataTooLarge):
        return f"nested too deep or too full ({error})"
    if not isinstance(error, json.JSONDecodeError):
        return f"not valid JSON ({error!s:.200})"
    begins_as_json = text.lstrip()[:1] in ("{", "[")
    if begins_as_json and (error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")):
        return f"not valid JSON: the text ends too early ({error}); write the whole call again, shorter if need be"
    return f"not valid JSON ({error})"


class _ValueMismatch(Exception):
    """A value does not fit its schema; `problems` say what is wrong and where, a line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems


class _TriesExhausted(Exception):
    """The schema has so many alternatives that `TRIES` are used up."""


@dataclass(slots=True)
class _SchemaFitter:
    """Fits values to the schema `root` and its parts; `tries` is how many parts may still be visited.

    Each method takes the value's place for error texts (`path`), its schema, the value, and `exact`: whether it has to
    fit as it is. It returns the value to use. Raises: _ValueMismatch.
    """

    root: Mapping[str, Any]
    tries: int = TRIES

    def fit(self, path: str, schema: Any, value: Any, exact: bool) -> Any:
        """Fit a value to a schema of any kind. Raises: _ValueMismatch, _TriesExhausted."""
        self.tries -= 1
        if self.tries < 0:
            raise _TriesExhausted
        if schema is False:
            raise _ValueMismatch(f"{path!r} can't be given")
        if not isinstance(schema, Mapping):
            return value
        if "$ref" in schema:
            schema = resolve(schema, self.root)
        for part in schema.get("allOf", ()):
            value = self.fit(path, part, value, exact)
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            value = self._one_of(path, schema, branches, value, exact)
        if "const" in schema:
            value = self._fit_listed(path, [schema["const"]], value, exact)
        elif "enum" in schema:
            value = self._fit_listed(path, schema["enum"], value, exact)
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._one_of(path, schema, [{**schema, "type": name} for name in kind], value, exact)
        if value is None and (kind == "null" or schema.get("nullable") is True):
            return None
        fitter = _FITTERS.get(kind) if isinstance(kind, str) else None
        if fitter is not None and "const" not in schema and "enum" not in schema:
            value = fitter(self, path, schema, value, exact)
        elif kind is None and isinstance(value, dict) and ("properties" in schema or "required" in schema):
            value = self.object(path, schema, value, exact)
        return value

    def _one_of(self, path: str, schema: Mapping[str, Any], branches: Sequence[Any], value: Any, exact: bool) -> Any:
        """Return the value by the first branch that accepts it unchanged, else by the first that can convert it."""
        tag = schema.get("discriminator")
        if isinstance(tag, Mapping) and isinstance(value, dict) and isinstance(tag.get("mapping"), Mapping):
            name, mapping = str(tag.get("propertyName")), tag["mapping"]
            kind = value.get(name)
            if not isinstance(kind, str) or kind not in mapping:
                raise _ValueMismatch(
                    f"{_argument_path(path, name)!r} must be one of {', '.join(mapping):.400}, not {_describe(kind)}"
                )
            return self.fit(path, {"$ref": mapping[kind]}, value, exact)
        problems: list[str] = []
        for as_it_is in (True,) if exact else (True, False):
            for branch in branches:
                try:
                    return self.fit(path, branch, value, as_it_is)
                except _ValueMismatch as misfit:
                    problems.extend(misfit.problems)
        shapes = ", ".join(dict.fromkeys(_shape(resolve(b, self.root)) for b in branches if isinstance(b, Mapping)))
        if not isinstance(value, dict | list) or not problems:
            raise _ValueMismatch(f"{path!r} must be one of: {shapes}; not {_describe(value)}")
        for problem in problems:
            if not problem.startswith(repr(path)):
                raise _ValueMismatch(problem)  # it names a part, which says more
        raise _ValueMismatch(f"{path!r} fits none of: {shapes} ({problems[-1]:.200})")

    def _fit_listed(self, path: str, values: Sequence[Any], value: Any, exact: bool) -> Any:
        """Return the one of `values` (an enum's) that the value equals or can be converted to."""
        for choice in values:
            if _equal_in_json(choice, value):
                return choice
        for choice in () if exact else values:
            if (kind := _KINDS.get(type(choice))) is not None:
                try:
                    if _equal_in_json(choice, _FITTERS[kind](self, path, {}, value, False)):
                        return choice
                except _ValueMismatch:
                    continue
        choices = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in values)
        raise _ValueMismatch(
            f"{path!r} must be {'one of ' if len(values) > 1 else ''}{choices:.400}, not {_describe(value)}"
        )

    def object(self, path: str, schema: Mapping[str, Any], value: Any, exact: bool) -> Any:
        """Fit a value to an object, or to the object in a text."""
        if isinstance(value, str) and not exact:
            value = self._parse_text(path, value, "{", "an object")
        if not isinstance(value, dict):
            raise _ValueMismatch(f"{path!r} must be an object, not {_describe(value)}")
        properties, required = schema.get("properties"), schema.get("required")
        properties = properties if isinstance(properties, Mapping) else {}
        required = required if isinstance(required, list | tuple) else ()
        others = schema.get("additionalProperties", True)
        problems: list[str] = []
        if missing := [name for name in required if name not in value]:
            problems.append(f"missing {_quote_names(path, missing)}")
        if others is False and (unknown := [name for name in value if name not in properties]):
            names = ", ".join(properties) or "none"
            problems.append(f"unknown {_quote_names(path, unknown[:PROBLEMS_SHOWN])}; known are {names:.600}")
        result: dict[str, Any] = {}
        for name, item in value.items():
            try:
                result[name] = self.fit(_argument_path(path, name), properties.get(name, others), item, exact)
            except _ValueMismatch as misfit:
                # null stands for "left out" with many models.
                if item is None and name in properties and name not in required and not exact:
                    continue
                if name in properties or others is not False:
                    problems.extend(misfit.problems)
        if problems:
            raise _ValueMismatch(*problems)
        return result

    def array(self, path: str, schema: Mapping[str, Any], value: Any, exact: bool) -> Any:
        """Fit a value to a list, to the list in a text, or as the only item of a list."""
        firsts = schema.get("prefixItems")
        firsts = firsts if isinstance(firsts, list | tuple) else ()
        items = schema.get("items", True)
        if isinstance(value, str) and not exact and value.lstrip()[:1] == "[":
            value = self._parse_text(path, value, "[", "a list")
        if not isinstance(value, list):
            if exact or value is None or firsts:
                raise _ValueMismatch(f"{path!r} must be a list, not {_describe(value)}")
            try:
                value = [self.fit(path, items, value, True)]
            except _ValueMismatch:
                raise _ValueMismatch(f"{path!r} must be a list, not {_describe(value)}") from None
        result: list[Any] = []
        problems: list[str] = []
        for index, (item, part) in enumerate(zip(value, chain(firsts, repeat(items)), strict=False)):
            try:
                result.append(self.fit(f"{path}[{index}]", part, item, exact))
            except _ValueMismatch as misfit:
                problems.extend(misfit.problems)
        if problems:
            raise _ValueMismatch(*problems)
        self._check_bounds(path, schema, len(result), "minItems", "maxItems", "items")
        if schema.get("uniqueItems") is not True:
            return result
        if len({json.dumps(item, sort_keys=True) for item in result}) < len(result):
            raise _ValueMismatch(f"{path!r} must hold each item once")
        return result

    def text(self, path: str, schema: Mapping[str, Any], value: Any, exact: bool) -> Any:
        """Convert a value to a text; a whole number is written out."""
        if isinstance(value, int) and not isinstance(value, bool) and not exact:
            value = str(value)
        if not isinstance(value, str):
            raise _ValueMismatch(f"{path!r} must be of type string, not {_describe(value)}")
        self._check_bounds(path, schema, len(value), "minLength", "maxLength", "characters")
        if (check := _FORMATS.get(schema.get("format", ""))) is not None:
            try:
                check[0](value)
            except ValueError:
                raise _ValueMismatch(f"{path!r} must be {check[1]}, not {_describe(value)}") from None
        return value

    def integer(self, path: str, schema: Mapping[str, Any], value: Any, exact: bool) -> Any:
        """Convert a value to a whole number, also from a text or a float without fraction."""
        number = value if exact else _number(value)
        if isinstance(number, float) and number.is_integer() and abs(number) <= EXACT_FLOAT:
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool):
            raise _ValueMismatch(f"{path!r} must be of type integer, not {_describe(value)}")
        _check_size(path, number)
        return self._check_measures(path, schema, number)

    def number(self, path: str, schema: Mapping[str, Any], value: Any, exact: bool) -> Any:
        """Fit a value to a number, also one in a text, if a float keeps all its digits."""
        number = value if exact else _number(value)
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise _ValueMismatch(f"{path!r} must be of type number, not {_describe(value)}")
        _check_size(path, number)
        if isinstance(number, int) and int(float(number)) != number:
            raise _ValueMismatch(
                f"{path!r} must be of type number, which does not keep all digits of {_describe(value)}"
            )
        return self._check_measures(path, schema, number)

    def boolean(self, path: str, schema: Mapping[str, Any], value: Any, exact: bool) -> Any:
        """Fit a value to true or false, also the word in a text, 0 or 1."""
        if isinstance(value, bool):
            return value
        if not exact:
            if isinstance(value, str) and value.strip().lower() in ("true", "false"):
                return value.strip().lower() == "true"
            if type(value) is int and value in (0, 1):
                return value == 1
        raise _ValueMismatch(f"{path!r} must be of type boolean, not {_describe(value)}")

    def null(self, path: str, schema: Mapping[str, Any], value: Any, exact: bool) -> Any:
        """Fit a value to null, also the word in a text."""
        if value is None or (not exact and isinstance(value, str) and value.strip() in ("null", "None")):
            return None
        raise _ValueMismatch(f"{path!r} must be null, not {_describe(value)}")

    def _parse_text(self, path: str, text: str, opening: str, what: str) -> Any:
        """Return the object or list in a JSON text that begins with `opening`; `what` names it in error texts."""
        if text.lstrip()[:1] == opening:
            try:
                return read_json(text)
            except (ValueError, RecursionError) as error:
                raise _ValueMismatch(f"{path!r} must be {what}; its text is {_unreadable(text, error)}") from None
        raise _ValueMismatch(f"{path!r} must be {what}, not {_describe(text)}")

    def _check_measures(self, path: str, schema: Mapping[str, Any], value: int | float) -> int | float:
        """Return a number after checking it by the schema's `minimum`, `multipleOf` and so on."""
        for name, (holds, words) in _MEASURES.items():
            limit = schema.get(name)
            if isinstance(limit, int | float) and not isinstance(limit, bool) and not holds(value, limit):
                raise _ValueMismatch(f"{path!r} must be {words} {limit}, not {_describe(value)}")
        return value

    def _check_bounds(self, path: str, schema: Mapping[str, Any], size: int, least: str, most: str, unit: str) -> None:
        """Check a length by the schema's keywords `least` and `most`, such as `minItems` and `maxItems`."""
        low, high = schema.get(least), schema.get(most)
        if isinstance(low, int) and size < low:
            raise _ValueMismatch(f"{path!r} must have at least {low} {unit}, not {size}")
        if isinstance(high, int) and size > high:
            raise _ValueMismatch(f"{path!r} must have at most {high} {unit}, not {size}")


def _number(value: Any) -> Any:
    """Return the number in a text, if a number keeps all its digits; else the value unchanged."""
    if not isinstance(value, str) or len(value) > _NUMBER_CHARS:
        return value
    text = value.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        return value
    try:
        parsed = float(text)
        return parsed if Decimal(text) == Decimal(repr(parsed)) else value
    except (InvalidOperation, OverflowError):
        return value


def _equal_in_json(value: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON: 1.0 equals 1, true does not."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _argument_path(path: str, name: str) -> str:
    """Return the name of a part of an argument: `items[0].name`."""
    return f"{path}.{name[:80]}" if path else name[:80]


def _quote_names(path: str, names: Sequence[str]) -> str:
    """Return the places of these members of the value at `path`, in quotes, for an error text."""
    return ", ".join(repr(_argument_path(path, name)) for name in names)


def _describe(value: Any) -> str:
    """Return a value for an error text, in JSON; a text in single quotes."""
    try:
        if isinstance(value, str):
            return f"{value!r:.80}"
        return f"{json.dumps(value, ensure_ascii=False):.80}"
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"


def _shape(schema: Mapping[str, Any]) -> str:
    """Return what a schema, a branch of a union, allows, in a word or two for an error text."""
    for key in ("const", "enum"):
        if key in schema:
            return f"{json.dumps(schema[key], ensure_ascii=False):.80}"
    kind = schema.get("type", "a value")
    if kind == "object" and isinstance(names := schema.get("properties"), Mapping) and names:
        return f"an object with {', '.join(names):.80}"
    return str(schema.get("format", kind))


def _duration(text: str) -> None:
    """Check an ISO 8601 duration. Raises: ValueError."""
    if not re.fullmatch(r"-?P(?=.)(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?", text[:100]):
        raise ValueError


_FitMethod = Callable[[_SchemaFitter, str, Mapping[str, Any], Any, bool], Any]

_FITTERS: Mapping[str | None, _FitMethod] = {
    "object": _SchemaFitter.object,
    "array": _SchemaFitter.array,
    "string": _SchemaFitter.text,
    "integer": _SchemaFitter.integer,
    "number": _SchemaFitter.number,
    "boolean": _SchemaFitter.boolean,
    "null": _SchemaFitter.null,
}

_KINDS: Mapping[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

_FORMATS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "date": (date.fromisoformat, "a date such as 2026-11-20"),
    "date-time": (datetime.fromisoformat, "a date and time such as 2026-11-20T15:30:00+00:00"),
    "time": (time.fromisoformat, "a time such as 15:30"),
    "uuid": (UUID, "a UUID"),
    "duration": (_duration, "a duration such as PT1H30M"),
}

_MEASURES: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, limit: value >= limit, "at least"),
    "maximum": (lambda value, limit: value <= limit, "at most"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "more than"),
    "exclusiveMaximum": (lambda value, limit: value < limit, "less than"),
    "multipleOf": (lambda value, limit: limit == 0 or not value % limit, "a multiple of"),
}
