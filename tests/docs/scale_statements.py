"""The statements in docs/scale.md: `python -m tests.docs.scale_statements` writes them anew."""

from __future__ import annotations

from pathlib import Path

from perdure.storage.distribution import LOCAL, REFERENCE, citus_statements, preparation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
BEGIN, END = "<!-- statements: begin -->\n", "<!-- statements: end -->\n"


def statements() -> str:
    """The statements and the tables that are not distributed, in Markdown."""
    lines = ["```sql", *(f"{statement};" for statement in (*preparation(), *citus_statements())), "```", ""]
    for title, tables in (("On every node, whole", REFERENCE), ("On the first node only", LOCAL)):
        lines += [f"| {title} | because |", "|---|---|"]
        lines += [f"| `{table}` | {why} |" for table, why in tables.items()]
        lines.append("")
    return "\n".join(lines)


def rewrite(page: str) -> str:
    """The page with the statements as they are now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no place for the statements"
    return before + begin + statements() + end + after


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
