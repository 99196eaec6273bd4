"""Frozen dataclasses that are made often: a message makes some forty."""

from __future__ import annotations

from dataclasses import MISSING, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["changed", "quick"]

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import replace as changed  # whose arguments are checked against the class
else:

    def changed(value: T, /, **changes: Any) -> T:
        """What `dataclasses.replace` gives, of a quick class, in half the time."""
        cls = type(value)
        return cls(**dict(zip(cls.__slots__, cls.__values__(value), strict=True)) | changes)


def quick(cls: type[T]) -> type[T]:
    """The class, with an `__init__` that takes a third of the time. Write it above `@dataclass(frozen=True, ...)`.

    The generated one sets every field by `object.__setattr__`, a call of a call each. This one lets the new object be
    of a class with the same slots, but not frozen, while plain assignments fill it. Nobody else has it yet.

    Raises: TypeError: the class has no slots of its own, fields that are not given, or a `__post_init__`.
    """
    known: dict[str, Any] = {"cls": cls, "set_class": object.__setattr__, "MISSING": MISSING}
    parameters: list[str] = ["self"]
    keywords: list[str] = []
    settings: list[str] = []
    for field in fields(cls):  # type: ignore[arg-type]  # that it is a dataclass is what the docstring asks for
        if not field.init:
            raise TypeError(f"{cls.__name__}.{field.name}: only what is given can be set quickly")
        parameter, value = field.name, field.name
        if field.default is not MISSING:
            known[f"default_{field.name}"] = field.default
            parameter = f"{field.name}=default_{field.name}"
        elif field.default_factory is not MISSING:
            known[f"make_{field.name}"] = field.default_factory
            parameter, value = (
                f"{field.name}=MISSING",
                f"make_{field.name}() if {field.name} is MISSING else {field.name}",
            )
        settings.append(f"    self.{field.name} = {value}")
        (keywords if field.kw_only else parameters).append(parameter)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    if hasattr(cls, "__post_init__") or list(getattr(cls, "__slots__", ())) != names:
        raise TypeError(f"{cls.__name__} must have the slots of its fields, and no __post_init__")
    known["open_cls"] = type(cls.__name__, (), {"__slots__": tuple(names)})
    lines = [
        f"def __init__({', '.join([*parameters, *(['*', *keywords] if keywords else [])])}):",
        "    set_class(self, '__class__', open_cls)",
        *settings,
        "    self.__class__ = cls",
    ]
    exec("\n".join(lines), known)
    made = known["__init__"]
    made.__qualname__, made.__doc__ = cls.__init__.__qualname__, cls.__init__.__doc__
    made.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    # Called with an object it gives its values, in order; of a single field `attrgetter` would give the value alone.
    cls.__values__ = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)  # type: ignore[attr-defined]
    cls.__init_subclass__ = classmethod(_refuse)  # type: ignore[assignment, method-assign]
    return cls


def _refuse(cls: type[Any], /, **_: Any) -> None:
    raise TypeError(f"{cls.__name__}: no class can be derived from a quick one, which its objects would be of")
