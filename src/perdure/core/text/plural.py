"""A number with its noun, for people."""


def plural(number: int, one: str, many: str = "") -> str:
    """The number with its noun: `1 file`, `1,200 files`; `many` is the plural where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
