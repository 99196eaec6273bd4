"""Conditions, rows, lines and paths by which a model asks for parts of a result."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context import expand
from perdure.core.errors import ToolError
from perdure.features.compression.quantities import parse_quantity
from tests.support.cases import for_each


def found(values: list[object], where: str) -> tuple[list[object], str]:
    """The values of `x` in the rows that are shown, and what is said below them."""
    answer = expand(
        json.dumps([{"x": value, "n": at} for at, value in enumerate(values)], ensure_ascii=False), where=where
    )
    lines = answer.split("\n")
    shown = [json.loads(line.partition("| ")[2])["x"] for line in lines if line.startswith("row ")]
    return shown, "\n".join(line for line in lines if line.startswith("["))


@for_each(
    [
        (["45s", "99ms", "120ms", "1.5 s", "2h30m"], "x>100ms", ["45s", "120ms", "1.5 s", "2h30m"]),
        (["45s", "99ms", "1m", "2h"], "x<=1min", ["45s", "99ms", "1m"]),
        (["2h30m", "150m", "1d 2h", "9000s"], "x=2.5h", ["2h30m", "150m", "9000s"]),
        (["1.5GB", "200MB", "900 KB", "3GiB"], "x > 200MB", ["1.5GB", "3GiB"]),
        (["1.5GB", "200MB"], "x<1 gb", ["200MB"]),
        (["1Gi", "1000Mi", "1025Mi"], "x>1Gi", ["1025Mi"]),
        (["300G", "900K", "12M"], "x>1M", ["300G", "12M"]),
        (["1,234", "999", "1234", "12,345.5"], "x>=1,234", ["1,234", "1234", "12,345.5"]),
        (["1.2k", "900", "3M", "1100"], "x>1000", ["1.2k", "3M", "1100"]),
        (["45%", "9 %", "101%"], "x>10%", ["45%", "101%"]),
        (["$1,234.50", "$99", "USD 2000"], "x>$100", ["$1,234.50", "USD 2000"]),
        (["99 €", "1.234,50 €"], "x>100€", ["1.234,50 €"]),
        (["-$5", "$4", "-3"], "x<$0", ["-$5"]),
        (["12 MB/s", "900 KB/s", "2GB/s"], "x>1MB/s", ["12 MB/s", "2GB/s"]),
        (["5 apples", "12 apples"], "x>9 apples", ["12 apples"]),
        (["3分钟", "100秒"], "x>2分钟", ["3分钟"]),
        (["12.50", "12.5", "12.5ms"], "x=12.50", ["12.50", "12.5"]),
        (["$12.50", "12.5"], "x=$12.5", ["$12.50"]),
        (["007", "7", "07"], "x=7", ["7"]),
        (["1e5", "100000"], "x=100000", ["100000"]),
        ([1000.0, 999], "x=1e3", [1000.0]),
        (["2026-11-27", "2025-01-01"], "x>2026", ["2026-11-27"]),
        (["b", "d"], "x>c", ["d"]),
        (["$900", "$1.2k", "$3M", "$1.5 million", "$2bn"], "x>$1k", ["$1.2k", "$3M", "$1.5 million", "$2bn"]),
        (["¥1.2万", "¥900"], "x>¥1千", ["¥1.2万"]),
        (["90ms", "00:02:05", "1:00:00.5", "45s"], "x>1min", ["00:02:05", "1:00:00.5"]),
        (["PT5M", "PT1H30M", "P1DT2H", "PT0.5S", "7min"], "x>PT6M", ["PT1H30M", "P1DT2H", "7min"]),
        (["1:30", "0:45", "10:00"], "x>1:00", ["1:30", "10:00"]),
        (["10:00:00", "09:15:00"], "x>09:30", ["10:00:00"]),
        (["3 months", "2 years", "400 days"], "x<1 year", ["3 months"]),
        (["3 gigabytes", "200 megabytes", "1PiB"], "x>1GB", ["3 gigabytes", "1PiB"]),
    ]
)
def test_quantities_are_compared_by_their_units(values: list[object], where: str, shown: list[object]) -> None:
    assert found(values, where)[0] == shown


@pytest.mark.parametrize(
    ("values", "where", "shown", "note"),
    [
        (["45", "200ms"], "x>100ms", ["200ms"], "[where '100ms' is wanted, '45' were left out: they have another unit"),
        (["45s", "3 MB"], "x>100ms", ["45s"], "[where '100ms' is wanted, '3 MB' were left out: they have another unit"),
        (["$45", "€900"], "x>$9", ["$45"], "[where '$9' is wanted, '€900' were left out: they have another unit"),
        (["n/a", "12", None, ""], "x>9", ["12"], "[where '9' is wanted, 'n/a' were left out: they have another unit"),
        (["1:30", "45s"], "x>9s", ["45s"], "[where '9s' is wanted, '1:30' were left out: they have another unit"),
        (["45s", "120ms"], "x>50", ["120ms"], "[where '50' is wanted, '45s', '120ms' were compared without units]"),
        (["45ms", "120ms"], "x>50", ["120ms"], ""),
        (["45s", "1ms", "-"], "x>5", ["45s"], "[where '5' is wanted, '-' were left out: they have another unit"),
        (["45s", "-"], "x>5s and x>1MB", [], "[where '1MB' is wanted, '45s' were left out: they have another unit"),
        (["90ms", "2 s"], "x>1..", [], "[where '1..' is wanted, '90ms', '2 s' were left out: they have another unit"),
        (["45s", "90ms"], "x>soon", [], "[where 'soon' is wanted, '45s', '90ms' were left out: they have another unit"),
        (["90s", "1:30"], "x>1:00", ["1:30"], "[where '1:00' is wanted, '90s' were left out: they have another unit"),
        (["45s"], "x>2MB", [], "[where '2MB' is wanted, '45s' were left out: they have another unit"),
    ],
)
def test_the_answer_says_what_could_not_be_compared(
    values: list[object], where: str, shown: list[object], note: str
) -> None:
    rows, below = found(values, where)

    assert rows == shown
    assert below.startswith(note) and bool(below) is bool(note)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_seconds_are_more_in_any_unit(first: int, second: int) -> None:
    forms = ("{}s", "{}000ms", "{} sec", "{}000000 us")
    texts = [[form.format(number) for form in forms] for number in (first, second)]
    for a in texts[0]:
        for b in texts[1]:
            left, right = parse_quantity(a), parse_quantity(b)
            assert left is not None
            assert right is not None
            assert left.compare(right) == (first > second) - (first < second)


def test_units_of_a_kind_rise() -> None:
    """As people write sizes and times, from small to large."""
    for row in (
        "1B 1KB 1KiB 1MB 1MiB 1GB 1GiB 1TB",
        "1ns 1us 1ms 1s 1min 1h 1d 1w",
        "1mm 1cm 1m 1km",
        "1bps 1kbps 1Mbps",
    ):
        quantities = [parse_quantity(text) for text in row.split()]
        assert all(a is not None and b is not None and b.compare(a) == 1 for a, b in pairwise(quantities))


ROWS = json.dumps({"items": [{"a": 1, "b": {"c.d": [5, 6]}}, {"a": 2}, {"a": 3}]})
TEXT = "\n".join(f"line {number}" for number in range(1, 10))


@for_each(
    [
        (ROWS, {"rows": "-1"}, "rows='-1' can't be used: they are not counted from the end: write 20..30, 20.. or 20"),
        (ROWS, {"rows": "0"}, "rows='0' can't be used: they are counted from 1: write 20..30"),
        (ROWS, {"rows": "3..2"}, "rows='3..2' ends before it begins: write 20..30"),
        (ROWS, {"rows": "9"}, "rows='9' is outside: there are rows 1..3"),
        (ROWS, {"rows": "all"}, "rows='all' can't be used: write 20..30"),
        (TEXT, {"lines": "7..5"}, "lines='7..5' ends before it begins: write 20..30"),
        (TEXT, {"lines": "0"}, "lines='0' can't be used: they are counted from 1"),
        (TEXT, {"lines": "0..0"}, "lines='0..0' can't be used: they are counted from 1"),
        (TEXT, {"lines": "-3"}, "lines='-3' can't be used: they are not counted from the end"),
        (TEXT, {"lines": "40.."}, "lines='40..' is outside: there are lines 1..9"),
        *(
            (ROWS, {"where": where}, "can't be used: write status=Pending, took>100ms or name~web")
            for where in ("a>", "a>1 and", "a=1 or ", "a", ">1", "")
        ),
        *(
            (ROWS, {"path": path}, 'can\'t be used: write items[3].status, or labels["a.b"]')
            for path in (
                "$..a",
                "items[*].a",
                "items[-1]",
                "items[0:2]",
                "items..a",
                "items.",
                "items[",
                '["a',
                "items[a]",
            )
        ),
        (ROWS, {"path": "items[7]"}, "there is no 7; there is 0..2"),
        (json.dumps({"a": []}), {"path": "a[0]"}, "there is no 0; there is nothing"),
        (json.dumps({"a": {}}), {"path": "a.b"}, "there is no 'b'; there is nothing"),
    ]
)
def test_an_argument_that_can_not_be_used_is_explained_with_an_example(
    text: str, arguments: dict[str, str], says: str
) -> None:
    with pytest.raises(ToolError) as caught:
        expand(text, **arguments)  # type: ignore[arg-type]

    assert says in str(caught.value)


@pytest.mark.parametrize("path", ["items[0].b['c.d'][1]", '$.items[0].b["c.d"][1]', "$['items'][0]['b']['c.d'][1]"])
def test_a_path_may_be_written_as_other_tools_do(path: str) -> None:
    assert expand(ROWS, path=path).endswith("| 6")


def test_the_whole_document_is_a_path() -> None:
    assert expand(json.dumps([1, 2]), path="$").endswith("| [1,2]")
