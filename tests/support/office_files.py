"""Small PDF, DOCX and XLSX files, built without a library, for tests of file reading."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def pdf_of(pages: Sequence[str], *, title: str = "") -> bytes:
    """Build a PDF of pages of Latin-1 text in Helvetica. An empty text makes a page with only a drawing."""
    drawings = []
    for page in pages:
        lines = "".join(f"({pdf_text(line)}) Tj T*\n" for line in page.split("\n"))
        drawings.append(f"BT /F1 11 Tf 13 TL 50 780 Td\n{lines}ET" if page else "10 10 100 100 re f")
    return drawn_pdf_of(drawings, title=title)


def drawn_pdf_of(drawings: Sequence[str], *, title: str = "") -> bytes:
    """Build a PDF of pages by the operators that draw them; `F1` is Helvetica."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    objects.append(b"<< /Title (%s) >>" % pdf_text(title).encode("latin-1"))
    kids = []
    for drawn in (drawing.encode("latin-1") for drawing in drawings):
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
        kids.append(b"%d 0 R" % (len(objects) + 1))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % offset for offset in offsets))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R /Info 4 0 R >>\n" % (len(objects) + 1))
    out.write(b"startxref\n%d\n%%%%EOF\n" % table)
    return out.getvalue()


def docx_of(paragraphs: Sequence[str | Sequence[Sequence[str]]], *, extra: Mapping[str, bytes] | None = None) -> bytes:
    """Build a DOCX of paragraphs and tables (rows of cells). A leading `# ` or `## ` makes a paragraph a heading.

    Args:
        extra: name -> content of further parts, or of parts to replace.
    """
    body = "".join(_docx_paragraph(item) if isinstance(item, str) else _docx_table(item) for item in paragraphs)
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2)
    )
    parts = {
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>',
        "word/_rels/document.xml.rels": _relations({"rId1": ("styles", "styles.xml")}),
        "_rels/.rels": _relations({"rId1": ("officeDocument", "word/document.xml")}),
    }
    return _office(parts, "word/document.xml", "wordprocessingml.document.main+xml", extra)


def xlsx_of(
    sheets: Mapping[str, Sequence[Sequence[str | float | None]] | str], *, extra: Mapping[str, bytes] | None = None
) -> bytes:
    """Build an XLSX of worksheets by title. A cell is text, a number or None; a sheet may be its raw `<sheetData>`.

    Args:
        extra: name -> content of further parts, or of parts to replace.
    """
    rows = {title: rows if isinstance(rows, str) else _sheet_data(rows) for title, rows in sheets.items()}
    elements = "".join(
        f'<sheet name={quoteattr(title)} sheetId="{n}" r:id="rId{n}"/>' for n, title in enumerate(rows, start=1)
    )
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{_SHEET}" xmlns:r="{_RELATIONS}"><sheets>{elements}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _relations(
            {f"rId{n}": ("worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(rows) + 1)}
        ),
        "_rels/.rels": _relations({"rId1": ("officeDocument", "xl/workbook.xml")}),
        **{
            f"xl/worksheets/sheet{n}.xml": f'<worksheet xmlns="{_SHEET}">{data}</worksheet>'
            for n, data in enumerate(rows.values(), start=1)
        },
    }
    return _office(parts, "xl/workbook.xml", "spreadsheetml.sheet.main+xml", extra)


def zip_of(parts: Mapping[str, bytes]) -> bytes:
    """Build a ZIP archive of `parts`; their names are not checked."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _office(parts: Mapping[str, str], main: str, content: str, extra: Mapping[str, bytes] | None) -> bytes:
    types = (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/{main}" ContentType="application/vnd.openxmlformats-officedocument.{content}"/></Types>'
    )
    encoded = {name: (_XML + text).encode() for name, text in {"[Content_Types].xml": types, **parts}.items()}
    return zip_of({**encoded, **(extra or {})})


def _relations(targets: Mapping[str, tuple[str, str]]) -> str:
    elements = "".join(
        f'<Relationship Id="{key}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'
        for key, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{elements}</Relationships>'


def _docx_paragraph(text: str) -> str:
    level = len(text) - len(text.lstrip("#"))
    style = f'<w:pPr><w:pStyle w:val="Heading{level}"/></w:pPr>' if level in (1, 2) else ""
    escaped = escape(text[level:].strip() if style else text)
    return f'<w:p>{style}<w:r><w:t xml:space="preserve">{escaped}</w:t></w:r></w:p>'


def _docx_table(rows: Sequence[Sequence[str]]) -> str:
    cells = ("".join(f"<w:tc>{_docx_paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def _sheet_data(rows: Sequence[Sequence[str | float | None]]) -> str:
    rows_of_cells = ("".join(map(_sheet_cell, row)) for row in rows)
    return f"<sheetData>{''.join(f'<row>{cells}</row>' for cells in rows_of_cells)}</sheetData>"


def _sheet_cell(value: str | float | None) -> str:
    match value:
        case None:
            return "<c/>"
        case str():
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        case _:
            return f"<c><v>{value!r}</v></c>"


def pdf_text(text: str) -> str:
    """`text` as it stands between the brackets of a PDF's string."""
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
