"""The results page: one HTML file with tables, pictures and the figures of others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from perdure.core.errors import InvalidInput, file_errors
from perdure.core.text.tables import read_table

RESULT, PAGE = "result.json", "results.html"
FILTERS: Mapping[str, Callable[[Any], str]] = {
    "percent": lambda share: "–" if share is None else f"{100 * share:.1f}",
    "dollars": lambda price: (
        "unknown" if price is None else "$0" if not price else f"${price:.4f}" if price < 1 else f"${price:,.2f}"
    ),
    "tokens": lambda count: "–" if count is None else f"{count:,.0f}",
    "seconds": lambda time_s: f"{1000 * time_s:.0f} ms" if time_s < 1 else f"{time_s:.1f} s",
}
"""How the templates write figures. A share or a count that is None was not measured."""


def write_result(folder: Path, result: Mapping[str, Any]) -> Path:
    """Write the result of a run, whole, and return its file. Raises: InvalidInput."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    return _write(folder / RESULT, f"{text}\n")


def write_page(folder: Path) -> Path:
    """Write the page of the results in a folder and in the folders in it, and return its file. Raises: InvalidInput."""
    from jinja2 import UndefinedError

    found = sorted({*folder.glob(RESULT), *folder.glob(f"*/{RESULT}")})
    if not found:
        raise InvalidInput(f"{folder} has no {RESULT}: `perdure bench NAME ... --out {folder}` writes one")
    results = []
    for file in found:
        try:
            results.append(json.loads(file.read_text(encoding="utf-8")))
            render_page(results[-1:])
        except (OSError, ValueError, LookupError, TypeError, RecursionError, UndefinedError) as error:
            raise InvalidInput(f"{file} is no result that `perdure bench` has written: {error}") from error
    return _write(folder / PAGE, render_page(results))


def render_page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of results as HTML that needs nothing else."""
    peers = read_table(__file__, "peers.toml")["figure"]
    return _render("page.html", results=results, peers=peers, picture=render_grid)


def render_grid(system: Mapping[str, Any], title: str) -> str:
    """Draw a grid as SVG: lengths from left to right, depths downwards, in each cell the mean of all seeds."""
    cells: dict[tuple[float, float], list[float]] = {}
    for length, depth, _, points in system["grid"]:
        cells.setdefault((length, depth), []).append(points)
    return _render(
        "grid.svg",
        title=f"{title}: {system['name']}",
        lengths=sorted({length for length, _ in cells}),
        depths=sorted({depth for _, depth in cells}),
        cells={place: fmean(points) for place, points in cells.items()},
    )


def _render(name: str, **values: Any) -> str:
    """Return a template with these values, which are escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= FILTERS
    template = files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
    text: str = made.from_string(template).render(safe=Markup, **values)
    return text


def _write(file: Path, text: str) -> Path:
    """Write a file atomically, and return it. Raises: InvalidInput."""
    part = file.with_name(f".{file.name}.part")
    with file_errors(file, "written"):
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(file)
    return file
