"""A server on 127.0.0.1 with the part of the S3 API that Perdure uses: put (also in parts), get, head, delete, list.

It keeps objects in memory, refuses requests that are not signed by its key, and can be told to fail or to damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

KEY_ID, SECRET = "AKIADOUBLE", "wJalrXUtnFEMIexampleSECRETdouble"
PAGE = 3
"""How many objects a page of a list has."""


@dataclass(slots=True)
class S3:
    """The double: its address, what it holds, and how it misbehaves.

    Args:
        objects: path with the bucket -> bytes.
        times: path -> when it was put.
        requests: method and path of each request, in order.
        status: of all answers, if not 0.
    """

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    times: dict[str, datetime] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    status: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a client reaches it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def make_older(self, age: timedelta) -> None:
        """Let all objects be older than they are."""
        self.times = {path: at - age for path, at in self.times.items()}


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    """The double on a free port of 127.0.0.1."""
    double = S3()
    handler = type("Handler", (_Handler,), {"double": double})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    double.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    double: S3
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def _begin(self) -> tuple[str, dict[str, str], bytes] | None:
        """Path, query and body; None: the request was refused."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(address.path).lstrip("/")
        query = dict(urllib.parse.parse_qsl(address.query, keep_blank_values=True))
        self.double.requests.append(f"{self.command} {path}")
        if self.double.status:
            self._answer(self.double.status, b"<Error><Code>Broken</Code></Error>")
            return None
        if f"Credential={KEY_ID}/" not in self.headers.get("Authorization", ""):
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return None
        return path, query, body

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        if (request := self._begin()) is None:
            return
        path, query, body = request
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        if "uploadId" in query:
            self.double.uploads[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self._store(path, body)
        self._answer(200, ETag=tag)

    def do_POST(self) -> None:
        if (request := self._begin()) is None:
            return
        path, query, body = request
        if "uploads" in query:
            upload = f"upload-{len(self.double.uploads)}"
            self.double.uploads[upload] = {}
            self._answer(
                200, f"<R><UploadId>{upload}</UploadId></R>".replace("R>", "InitiateMultipartUploadResult>").encode()
            )
        elif "uploadId" in query:
            parts = self.double.uploads.pop(query["uploadId"])
            self._store(path, b"".join(parts[number] for number in sorted(parts)))
            self._answer(200, b'<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')
        elif "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for key in keys:
                self.double.objects.pop(f"{path.rstrip('/')}/{key}", None)
            deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
        else:
            self._answer(400)

    def do_GET(self) -> None:
        if (request := self._begin()) is None:
            return
        path, query, _ = request
        if "list-type" in query:
            self._list(path.rstrip("/"), query)
            return
        data = self.double.objects.get(path)
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": '"x"', "Last_Modified": _http_time(self.double.times[path])}
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first = int(match[1])
            last = min(int(match[2] or len(data)), len(data) - 1)
            part = data[first : last + 1]
            self._answer(206, part, Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)
        else:
            self._answer(200, data, **headers)

    def do_HEAD(self) -> None:
        if (request := self._begin()) is None:
            return
        data = self.double.objects.get(request[0])
        if data is None:
            self._answer(404)
        else:
            at = _http_time(self.double.times[request[0]])
            self._answer(200, Content_Length=str(len(data)), ETag='"x"', Last_Modified=at)

    def do_DELETE(self) -> None:
        if (request := self._begin()) is None:
            return
        self.double.objects.pop(request[0], None)
        self._answer(204)

    def _store(self, path: str, data: bytes) -> None:
        self.double.objects[path] = data
        self.double.times[path] = datetime.now(UTC)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        """A page of the objects whose keys begin with the prefix."""
        begin, after = (
            f"{bucket}/{query.get('prefix', '')}",
            query.get("continuation-token", query.get("start-after", "")),
        )
        paths = sorted(path for path in self.double.objects if path.startswith(begin))
        keys = [path.removeprefix(f"{bucket}/") for path in paths]
        keys = [key for key in keys if key > after]
        page, rest = keys[:PAGE], keys[PAGE:]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.double.objects[f'{bucket}/{key}'])}</Size>"
            f"<LastModified>{self.double.times[f'{bucket}/{key}'].strftime('%Y-%m-%dT%H:%M:%S.000Z')}</LastModified>"
            '<ETag>"x"</ETag></Contents>'
            for key in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        self._answer(
            200,
            f"<ListBucketResult><IsTruncated>{'true' if rest else 'false'}</IsTruncated>{contents}{more}"
            "</ListBucketResult>".encode(),
        )


def _http_time(at: datetime) -> str:
    return at.strftime("%a, %d %b %Y %H:%M:%S GMT")
