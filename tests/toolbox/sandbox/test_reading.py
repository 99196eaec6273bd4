"""Files are read in the sandbox: what a file that has taken over its reader can do, and what the server makes of it.

Every attempt runs inside the sandbox under test. What a file could make a library do is written here as plain code in
the reader's place, which is the most that it can come to.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.core.documents import Document
from perdure.core.errors import ConversionFailed, ExtraMissing
from perdure.core.tools.sandbox import SandboxLimits
from perdure.features.files.converters import sandbox as reader
from perdure.features.files.converters.convert import convert_file
from perdure.features.files.converters.limits import ReadLimits
from perdure.toolbox.sandbox.choose import NoSandbox
from tests.support.office_files import docx_of, pdf_of, xlsx_of, zip_of
from tests.toolbox.sandbox.cages import Cage

SERVERS = ["root", "user", "root without namespaces", "user without namespaces"]
CONTENT = "the bytes of the file"

FORGED = (
    "import json, os, struct; body = json.dumps({}).encode();"
    " os.write(4, struct.pack('<Q', len(body)) + body); os._exit(0)"
)
"""An answer past the return value."""

ATTEMPTS = {
    "the network": "socket.create_connection(('127.0.0.1', int(port)), timeout=2)",
    "a name of the network": "socket.getaddrinfo('localhost.example', 80) and socket.socket(socket.AF_INET)",
    "a socket of this machine": "socket.socket(socket.AF_UNIX).connect('\\0' + abstract)",
    "another file": "open(other).read()",
    "the folder of the file": "os.listdir(folder)",
    "the file by its path": "open(path, 'r+b')",
    "writing to the file": "os.write(0, b'x')",
    "cutting the file": "os.ftruncate(0, 0)",
    "the file by its descriptor": "open('/proc/self/fd/0', 'r+b').write(b'x')",
    "the server's memory": "open(f'/proc/{server}/mem', 'rb')",
    "the server's environment": "open(f'/proc/{server}/environ', 'rb').read()",
    "ending the server": "os.kill(int(server), 0)",
    "a program": "os.execv('/bin/sh', ['sh', '-c', 'echo x'])",
    "a file that stays": "open('/var/tmp/perdure-probe', 'w')",
}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A file that every user may read and write: nothing but the sandbox keeps anybody from it."""
    path = tmp_path / "upload.html"
    path.write_text(CONTENT)
    (tmp_path / "other.txt").write_text("a secret")
    for one in (tmp_path, path, tmp_path / "other.txt"):
        one.chmod(0o777)
    yield path
    assert path.read_text() == CONTENT


@pytest.mark.parametrize("cage", SERVERS, indirect=True)
class TestAReaderThatWasTakenOver:
    @pytest.mark.slow
    @pytest.mark.parametrize("attempt", ATTEMPTS)
    def test_it_reaches_nothing_but_its_file(self, cage: Cage, file: Path, attempt: str) -> None:
        """No network, no other file, no process; its file is there to be read, and not to be changed."""
        source = (
            "import os, socket, sys\n"
            "def probe(port, abstract, other, folder, path, server):\n"
            "    content = sys.stdin.read()\n"
            "    try:\n"
            f"        {ATTEMPTS[attempt]}\n"
            "    except OSError as error:\n"
            "        return [content, 'refused', type(error).__name__]\n"
            "    return [content, 'done', '']\n"
        )
        with socket.socket() as listener, socket.socket(socket.AF_UNIX) as local:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            abstract = f"perdure-{os.getpid()}"
            local.bind("\0" + abstract)
            local.listen()
            result = cage.run(
                source,
                "probe",
                input=file,
                arguments={
                    "port": str(listener.getsockname()[1]),
                    "abstract": abstract,
                    "other": str(file.with_name("other.txt")),
                    "folder": str(file.parent),
                    "path": str(file),
                    "server": str(os.getpid()),
                },
            )

        assert result.status == "success", result.error
        assert result.value[:2] == [CONTENT, "refused"]

    @pytest.mark.slow
    def test_it_has_no_environment_and_a_user_of_its_own(self, cage: Cage, file: Path) -> None:
        """Keys of the server are not there."""
        result = cage.run("import os\ndef probe():\n    return [dict(os.environ), os.getuid()]", "probe", input=file)
        environment, uid = result.value

        assert not {name for name in environment if "PERDURE" in name or "KEY" in name or "TOKEN" in name}
        assert uid != os.getuid() or os.getuid() != 0

    def test_the_next_job_has_no_file(self, cage: Cage, file: Path) -> None:
        """Nor what was left of one that was not read to its end."""
        source = "import sys\ndef probe(size):\n    return sys.stdin.read(size)"

        assert cage.run(source, "probe", input=file, arguments={"size": 3}).value == CONTENT[:3]
        assert cage.run(source, "probe", arguments={"size": -1}).value == ""


FILES = {
    "a.pdf": pdf_of(["One (1)\nmore", "", "Three"], title="A plan"),
    "a.docx": docx_of(["# Plan", "First we & they.", [["what", "how much"], ["tea", "3|4"]]]),
    "a.xlsx": xlsx_of({"One": [["a", 1.5]], "Empty": []}),
    "a.html": b"<title>T</title><h1>A</h1><p>\xc3\xbc &#12; &#xd800;",
    "a.csv": b"a,b\n" + (b"x" * 600 + b",2\n") * 2_000,
    "a.txt": b"plain",
}


def read(cage: Cage, path: Path, limits: ReadLimits | None = None) -> tuple[Document, list[tuple[int, int]]]:
    reports: list[tuple[int, int]] = []
    progress = lambda done, total: reports.append((done, total))  # noqa: E731
    return cage.wait(convert_file(path.name, path, limits=limits, progress=progress, sandbox=cage.sandbox)), reports


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_kind_is_read_as_it_is_without_a_sandbox(cage: Cage, tmp_path: Path, name: str) -> None:
    """To the letter, with what is done told in the same steps."""
    path = tmp_path / name
    path.write_bytes(FILES[name])
    reports: list[tuple[int, int]] = []
    expected = asyncio.run(convert_file(name, path, progress=lambda *it: reports.append(it)))

    assert read(cage, path) == (expected, reports)


@pytest.mark.parametrize(
    ("name", "data", "limits", "reason"),
    [
        ("a.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 20, ReadLimits(), "damaged"),
        ("a.docx", docx_of(["text"], extra={"inner.zip": zip_of({"a": b"x"})}), ReadLimits(), "another archive"),
        (
            "a.docx",
            docx_of(["x"], extra={"word/document.xml": b"<a>" * 20_000}),
            ReadLimits(),
            "nested too deeply|damaged",
        ),
        ("a.html", b"<p>twelve chars", ReadLimits(text_chars=10), "10 characters"),
        ("a.pdf", pdf_of(["x"] * 3), ReadLimits(pages=2), "3 pages, the limit is 2"),
        ("a.csv", b"a,b,c\n" * 400_000, ReadLimits(memory_bytes=100 << 20), "bytes of memory, the limit"),
    ],
)
def test_what_can_not_be_read_says_why(
    cage: Cage, tmp_path: Path, name: str, data: bytes, limits: ReadLimits, reason: str
) -> None:
    """In the words that the process without a sandbox has."""
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(ConversionFailed, match=reason):
        read(cage, path, limits)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("return {}", "should not"),
        ("return {'text': 1, 'page_starts': [], 'title': '', 'warnings': []}", "should not"),
        ("return {'text': '', 'page_starts': [[]], 'title': '', 'warnings': []}", "should not"),
        ("return {'text': 'x' * 11, 'page_starts': [], 'title': '', 'warnings': []}", "10 characters"),
        ("return {'refused': 'as it says itself'}", "as it says itself"),
        ("return [[]] * 300_000", "failed in the converter"),
        ("import os; os.abort()", "crashed the converter"),
        ("import time; time.sleep(60)", "1.5 in all"),
        ("while True: pass", "1 seconds of computing"),
        ("while True: print('x' * 65536)", "computing|printed"),
        ("raise ValueError('odd')", "ValueError: odd"),
        # What would have it read outside of the sandbox, if it were believed.
        (FORGED.format("{'status': 'refused', 'error': 'not in here'}"), "not in here"),
        ("raise ModuleNotFoundError(\"No module named 'perdure'\")", "No module named"),
    ],
)
def test_an_answer_is_trusted_as_little_as_the_file(
    cage: Cage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, reason: str
) -> None:
    """Whatever it makes the reader say; and what it prints is no progress."""
    monkeypatch.setattr(
        reader, "SOURCE", f"def read(name, kind, limits):\n    print('[[', [1, 2, 3], '[9')\n    {answer}"
    )
    path = tmp_path / "a.html"
    path.write_bytes(b"<p>x")

    limits = ReadLimits(text_chars=10, cpu_s=1 if "while" in answer else 20, wall_s=1.5 if "sleep" in answer else 20)
    with pytest.raises(ConversionFailed, match=reason):
        read(cage, path, limits)


def test_a_missing_package_is_named(cage: Cage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the file."""
    hidden = reader.SOURCE.replace("    from", "    import sys; sys.modules['pypdf'] = None\n    from", 1)
    monkeypatch.setattr(reader, "SOURCE", hidden)
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_of(["x"]))

    with pytest.raises(ExtraMissing, match=r"perdure\[files\]"):
        read(cage, path)


async def test_where_nothing_holds_code_back_a_plain_process_reads(tmp_path: Path) -> None:
    """On another system, in a container that allows too little, or where it was turned off."""
    path = tmp_path / "a.html"
    path.write_bytes(b"<p>x")

    assert (await convert_file("a.html", path, sandbox=NoSandbox("off"))).text == "x\n"


def test_where_our_own_code_can_not_be_read_a_plain_process_reads(
    cage: Cage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it was installed for its owner's eyes only: a job without the file has found so."""
    monkeypatch.setattr(reader, "IMPORT", "import perdure.not_there")
    monkeypatch.setattr(reader, "SOURCE", "def read(name, kind, limits):\n    import perdure.not_there")
    path = tmp_path / "a.html"
    path.write_bytes(b"<p>x")

    assert read(cage, path)[0].text == "x\n"


def test_a_conversion_that_is_cancelled_ends_its_process(cage: Cage, tmp_path: Path) -> None:
    """The rest of the pages is not read."""
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_of(["x\n" * 40] * 1_500))
    reports: list[int] = []

    async def cancelled() -> None:
        def progress(done: int, total: int) -> None:
            reports.append(done)
            if done == 1:
                task.cancel()

        task = asyncio.ensure_future(convert_file("a.pdf", path, progress=progress, sandbox=cage.sandbox))
        with pytest.raises(asyncio.CancelledError):
            await task

    cage.wait(cancelled())

    assert reports[-1] < 1_500
    assert cage.run("1 + 1").value == 2


@pytest.mark.slow
def test_a_large_file_is_handed_in_whole(cage: Cage, tmp_path: Path) -> None:
    """Piece by piece, without a copy of it in the server."""
    path = tmp_path / "a.bin"
    path.write_bytes(os.urandom(1 << 20) * 20)
    source = "import hashlib, sys\ndef f():\n    return hashlib.sha256(sys.stdin.buffer.read()).hexdigest()"

    result = cage.run(source, "f", input=path, limits=SandboxLimits(wall_s=20))

    assert result.value == hashlib.sha256(path.read_bytes()).hexdigest(), result.error


@pytest.mark.slow
def test_a_file_does_not_wait_for_a_slow_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All places are there for files: each is an owner of its own."""
    slow = reader.SOURCE.replace("    from", "    import time; time.sleep(5 * (name == 'slow.html'))\n    from", 1)
    monkeypatch.setattr(reader, "SOURCE", slow)
    for name in ("slow.html", "a.html"):
        (tmp_path / name).write_bytes(b"<p>x")
    cage = Cage(concurrency=2)

    async def read_beside() -> tuple[str, bool]:
        first = asyncio.create_task(convert_file("slow.html", tmp_path / "slow.html", sandbox=cage.sandbox))
        await asyncio.sleep(0.3)
        document = await convert_file("a.html", tmp_path / "a.html", sandbox=cage.sandbox)
        done = first.done()
        first.cancel()
        await asyncio.wait([first])
        return document.text, done

    try:
        text, done = cage.wait(read_beside())
    finally:
        cage.close()

    assert (text, done) == ("x\n", False)
