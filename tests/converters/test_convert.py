"""Files as they are uploaded: what becomes of each kind, what is refused and why, and that the next one is read."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from string import ascii_uppercase
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import uuid4

import pytest

from perdure.core.documents import Document
from perdure.core.errors import ConversionFailed, ExtraMissing, FileNameInvalid, FileTooLarge, FileTypeUnsupported
from perdure.features.files.converters.convert import convert_file
from perdure.features.files.converters.limits import ReadLimits
from tests.support.office_files import docx_of, pdf_of, xlsx_of, zip_of

WORD = "word/document.xml"
SPARSE = (
    '<sheetData><row r="1"><c r="A1"><v>1</v></c></row>'
    '<row r="1048576"><c r="XFD1048576"><v>2</v></c></row></sheetData>'
)


def convert(name: str, data: bytes, **options: Any) -> Document:
    """The document of a file with these bytes."""
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return asyncio.run(convert_file(name, Path(file.name), **options))


def refusal(name: str, data: bytes, limits: ReadLimits | None = None) -> str:
    """Why `data` is refused."""
    with pytest.raises(ConversionFailed) as raised:
        convert(name, data, limits=limits)
    assert raised.value.name == name
    return raised.value.reason


def test_a_pdf_is_read_page_by_page() -> None:
    """With what is done so far, the first line of each page, its title, and which pages have no text."""
    reports: list[tuple[int, int]] = []

    document = convert(
        "a.pdf", pdf_of(["One (1)\nmore", "", "Three"], title="A plan"), progress=lambda *it: reports.append(it)
    )

    assert document == Document(
        name="a.pdf",
        kind="pdf",
        text="One (1)\nmore\n\n\nThree\n",
        page_starts=(1, 4, 5),
        title="A plan",
        warnings=("no text on page 2 of 3: what stands there may be an image",),
    )
    assert reports == [(0, 3), (1, 3), (2, 3), (3, 3)]


async def test_two_hundred_pages_are_read_while_the_event_loop_goes_on(tmp_path: Path) -> None:
    """Progress comes in the loop's thread, page by page, from a file on disk."""
    path = tmp_path / "long.pdf"
    path.write_bytes(pdf_of([f"Page {number} of the book\nits second line" for number in range(1, 201)]))
    reports: list[tuple[int, int]] = []

    document = await convert_file("long.pdf", path, progress=lambda *it: reports.append(it))

    assert reports == [(done, 200) for done in range(201)]
    assert document.pages == 200
    assert document.text.split("\n")[document.page_starts[122] - 1] == "Page 123 of the book"


def test_a_docx_is_read_with_its_structure() -> None:
    """Headings, paragraphs and tables; what Office embeds is named and left out."""
    data = docx_of(
        ["# Plan", "First we & they.", "## Costs", [["what", "how much"], ["tea", "3|4"]]],
        extra={"word/embeddings/chart.xlsx": xlsx_of({"One": [["x"]]})},
    )

    document = convert("a.docx", data)

    assert document.text == (
        "# Plan\n\nFirst we & they.\n\n## Costs\n\n| what | how much |\n|---|---|\n| tea | 3\\|4 |\n"
    )
    assert document.title == "Plan"
    assert document.warnings == ("the embedded file 'word/embeddings/chart.xlsx' was left out",)


def test_a_workbook_is_read_as_a_table_for_each_sheet() -> None:
    """Strings that are shared, dates, truth values and errors as they are shown; blank rows and columns left out."""
    sheet = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rows = (
        '<sheetData><row><c t="s"><v>0</v></c><c/><c t="s"><v>1</v></c></row><row/>'
        '<row><c s="1"><v>45000</v></c><c r="C3"><v>0.30000000000000004</v></c><c r="D3" t="b"><v>1</v></c></row>'
        '<row><c s="2"><v>45000.75</v></c><c r="C4" t="e"><v>#DIV/0!</v></c><c r="D4"><f>1+1</f><v>2</v></c></row>'
        "</sheetData>"
    )
    extra = {
        "xl/sharedStrings.xml": f'<sst xmlns="{sheet}"><si><t>day</t></si><si><r><t>am</t></r><r><t>ount</t></r>'
        "<rPh><t>no</t></rPh></si></sst>".encode(),
        "xl/styles.xml": f'<styleSheet xmlns="{sheet}"><numFmts><numFmt numFmtId="164" formatCode="[Red]dd/mm hh:mm"/>'
        '</numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/>'
        '<xf numFmtId="164"/></cellXfs></styleSheet>'.encode(),
    }

    document = convert("a.xlsx", xlsx_of({"First": rows, "Empty": [], "Last & least": [["a", 1e20]]}, extra=extra))

    assert document.text == (
        "## First\n\n| day | amount |  |\n|---|---|---|\n| 2023-03-15 | 0.30000000000000004 | TRUE |\n"
        "| 2023-03-15 18:00:00 | #DIV/0! | 2 |\n\n## Last & least\n\n| a | 1e+20 |\n|---|---|\n"
    )
    assert document.warnings == ("worksheet 'Empty' is empty",)


def test_a_sparse_workbook_costs_what_stands_in_it() -> None:
    """A value in the first and in the last of 17 billion cells are two rows of two columns."""
    document = convert("a.xlsx", xlsx_of({"Far": SPARSE}), limits=ReadLimits(memory_bytes=300_000_000, cpu_s=5))

    assert document.text == "## Far\n\n| 1 |  |\n|---|---|\n|  | 2 |\n"


def test_a_workbook_whose_table_would_be_huge_is_refused() -> None:
    """Each row a cell in a column of its own: few values, but rows times columns."""
    letters = [f"{one}{two}{three}" for one in "ABCDEFGHIJKL" for two in ascii_uppercase for three in ascii_uppercase]
    cells = (f'<row><c r="{column}1"><v>1</v></c></row>' for column in letters)

    assert "10,000,000 characters" in refusal("a.xlsx", xlsx_of({"One": f"<sheetData>{''.join(cells)}</sheetData>"}))


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.txt", "今天天气很好，我们去公园散步吧。".encode("gb18030"), "今天天气很好，我们去公园散步吧。"),
        ("src/a.py", b"def f():\r\n    pass\r\n", "def f():\n    pass\n"),
        ("Makefile", b"run:\n\tgo\n", "run:\n\tgo\n"),
        ("a.html", b"<h1>A</h1><p>b", "# A\n\nb\n"),
        ("a.csv", b"a,b\n1,2\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"),
        ("a.json", b'{"a": 1}', '{"a": 1}'),
        ("empty.md", b"", ""),
        ("scan", pdf_of(["said by its bytes"]), "said by its bytes\n"),
    ],
)
def test_other_kinds_are_read(name: str, data: bytes, text: str) -> None:
    """By their names, or as text; told as one part that is done."""
    reports: list[tuple[int, int]] = []

    document = convert(name, data, progress=lambda *it: reports.append(it))

    assert (document.name, document.text) == (name, text)
    assert reports == [(0, 1), (1, 1)]


def test_a_large_table_is_read_in_the_child() -> None:
    """With the same result."""
    document = convert("a.csv", b"a,b\n" + b"1,2\n" * 260_000)

    assert document.line_count == 260_002


LOCK = b"/ID [<00> <00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (b"41" * 32, b"42" * 32)
PASSWORD = pdf_of(["secret"]).replace(b"/Root 1 0 R", b"/Root 1 0 R " + LOCK)

LYING = zip_of({WORD: b"x" * 5_000}).replace(struct.pack("<L", 5_000), struct.pack("<L", 50))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pdf", b"", "empty"),
        ("a.pdf", b"no pdf at all", "not a PDF"),
        ("a.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 20, "damaged"),
        ("a.pdf", pdf_of(["text"] * 5)[:300], "damaged"),
        ("a.pdf", PASSWORD, "encrypted"),
        ("a.pdf", pdf_of(["", ""]), "scanned"),
        ("a.docx", pdf_of(["x"]), "begins like a PDF"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "password"),
        ("a.docx", xlsx_of({"One": [["x"]]}), "no DOCX"),
        ("a.docx", docx_of(["text"])[:400], "damaged"),
        ("a.docx", docx_of([]), "no text"),
        ("a.docx", docx_of(["text"], extra={WORD: b"<unclosed>"}), "damaged"),
        ("a.docx", LYING, "damaged"),
        ("a.docx", docx_of(["text"], extra={"word/media/x": b" " * 20_000_000}), "200 times"),
        ("a.docx", docx_of(["text"], extra={f"x/{n}": b"" for n in range(6_000)}), "parts, the limit is 5,000"),
        ("a.docx", docx_of(["text"], extra={"inner.zip": b"x"}), "another archive"),
        ("a.docx", docx_of(["text"], extra={"word/media/image1.png": zip_of({"a": b"x"})}), "another archive"),
        *(("a.docx", docx_of(["text"], extra={part: b"x"}), "outside") for part in ("../x", "a/../../x", "/x", "C:/x")),
        ("a.docx", docx_of(["text"], extra={WORD: b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "document type"),
        ("a.docx", docx_of(["text"], extra={WORD: b"<a>" * 20_000 + b"</a>" * 20_000}), "nested too deeply"),
        ("a.xlsx", xlsx_of({"One": []}), "holds a value"),
        ("a.xlsx", xlsx_of({"One": "<sheetData><row>"}), "damaged"),
        ("a.txt", pdf_of(["x"]), "begins like a PDF"),
        ("a.txt", b"\x89PNG\r\n\x1a\n" + bytes(50), "begins like a PNG image"),
        ("a.txt", b"some text\0and more", "not text"),
        ("notes", bytes(range(256)), "not text"),
    ],
)
def test_a_file_that_can_not_be_read_says_why(name: str, data: bytes, reason: str) -> None:
    """In words that help, never a traceback."""
    assert reason in refusal(name, data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "name", "data", "reason"),
    [
        (ReadLimits(pages=2), "a.pdf", pdf_of(["x"] * 3), "3 pages, the limit is 2"),
        (ReadLimits(pages=1), "a.xlsx", xlsx_of({"a": [["x"]], "b": [["x"]]}), "2 worksheets, the limit is 1"),
        (ReadLimits(text_chars=10), "a.pdf", pdf_of(["twelve chars"]), "10 characters"),
        (ReadLimits(text_chars=10), "a.html", b"<p>twelve chars", "10 characters"),
        (ReadLimits(text_chars=10), "a.txt", b"twelve chars", "10 characters"),
        (ReadLimits(archive_bytes=900), "a.docx", docx_of(["x"]), "unpack to"),
        (ReadLimits(wall_s=0.01), "a.pdf", pdf_of(["x"]), "0.01 seconds"),
        (ReadLimits(cpu_s=1), "a.html", b"<p>x" * 500_000, "1 seconds of computing"),
        (ReadLimits(memory_bytes=60_000_000), "a.csv", b"a,b,c\n" * 300_000, "60,000,000 bytes of memory"),
    ],
)
def test_a_file_past_a_limit_says_which(limits: ReadLimits, name: str, data: bytes, reason: str) -> None:
    """Of pages, text, unpacked bytes, time, computing and memory; the next file is read."""
    assert reason in refusal(name, data, limits)
    assert convert("b.html", b"<p>x").text == "x\n"


def test_a_file_of_too_many_bytes_is_not_opened() -> None:
    """With both numbers."""
    with pytest.raises(FileTooLarge, match="5 bytes, the limit is 4"):
        convert("a.txt", b"12345", limits=ReadLimits(file_bytes=4))


@pytest.mark.parametrize("name", ["a.doc", "a.png", "a.zip", "A.EXE", "unknown.xyz"])
def test_a_file_of_another_kind_is_refused_with_what_there_is(name: str) -> None:
    """By its name, or by what it begins with."""
    with pytest.raises(FileTypeUnsupported, match="PDF, DOCX, XLSX") as raised:
        convert(name, zip_of({"a": b"x"}))

    assert "PDF" in raised.value.supported


def test_a_name_that_leads_outside_is_refused() -> None:
    """Before the file is looked at."""
    with pytest.raises(FileNameInvalid):
        convert("../a.txt", b"text")


def running_commands() -> Iterator[bytes]:
    """The command line of each process of this machine."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield file.read_bytes()


async def test_a_cancelled_conversion_ends_its_child(tmp_path: Path) -> None:
    """And the rest of the pages is not read."""
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_of(["x\n" * 40] * 1_500))
    pages: list[int] = []

    def cancel(done: int, total: int) -> None:
        pages.append(done)
        if done == 1:
            task.cancel()

    name = f"{uuid4()}.pdf"
    task = asyncio.create_task(convert_file(name, path, progress=cancel))
    with pytest.raises(asyncio.CancelledError):
        await task

    assert pages[-1] < 1_500
    assert not any(name.encode() in command for command in running_commands())


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.write(1, b'no json\\n')", "should not"),
        ("import os; os.write(1, b'{}\\n')", "should not"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "should not"),
        ("import time; time.sleep(60)", "longer than 1 seconds"),
        ("import os, time\nif os.fork(): os._exit(3)\ntime.sleep(5)", "longer than 1 seconds"),  # the pipe stays open
        ("import os, time; os.close(1); time.sleep(60)", "killed"),
    ],
)
def test_a_child_is_trusted_as_little_as_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, reason: str
) -> None:
    """Whatever a file makes it do: what it says is checked, how long and how much."""
    (tmp_path / "sitecustomize.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert reason in refusal("a.html", b"<p>x", ReadLimits(wall_s=1))


@pytest.mark.parametrize(("name", "package"), [("a.pdf", "pypdf"), ("a.docx", "mammoth")])
def test_a_missing_package_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, package: str
) -> None:
    """It is no fault of the file."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ExtraMissing, match=r"pip install 'perdure\[files\]'"):
        convert(name, pdf_of(["x"]) if name == "a.pdf" else docx_of(["x"]))


def test_a_child_sees_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its environment is that of its modules, and no more."""
    program = f"import os\nopen({str(tmp_path / 'seen')!r}, 'w').write(repr(dict(os.environ)))"
    (tmp_path / "sitecustomize.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    convert("a.html", b"<p>x")

    assert "PYTHONPATH" in (tmp_path / "seen").read_text()
    assert "sk-secret" not in (tmp_path / "seen").read_text()
