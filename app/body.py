"""Request bodies: whole, within the limit, or refused. Nothing behind this ever sees the part that happened to arrive."""

from __future__ import annotations

from io import BytesIO
from typing import IO

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.utils import cached_property

from app.errors import MalformedBody

LARGEST = 16 * 1024


class WholeBodyRequest(Request):
    """A request whose forms and documents are all read from `stream`, and only when somebody asks."""

    @cached_property
    def stream(self) -> IO[bytes]:
        """The body as a file. Raises MalformedBody and werkzeug's 413."""
        return BytesIO(self._read_whole())

    def refuse_by_headers(self) -> None:
        """Refuse what need not be read to be refused. Raises MalformedBody and werkzeug's 413."""
        # gunicorn takes chunks apart but leaves a compression before them in place.
        if self.headers.get("Transfer-Encoding", "chunked").strip(" \t").lower() != "chunked":
            raise MalformedBody
        if self.content_length is not None and self.content_length > LARGEST:
            raise RequestEntityTooLarge

    def _read_whole(self) -> bytes:
        self.refuse_by_headers()
        expected = self.content_length
        if expected is None and not self.environ.get("wsgi.input_terminated"):
            return b""
        body = self._read(LARGEST + 1 if expected is None else expected)
        if len(body) > LARGEST:
            raise RequestEntityTooLarge
        if expected is not None and len(body) < expected:
            raise MalformedBody
        return body

    def _read(self, most: int) -> bytes:
        source: IO[bytes] = self.environ["wsgi.input"]
        body = bytearray()
        try:
            while len(body) < most and (read := source.read(most - len(body))):
                body += read
        except Exception as error:  # the server's own kinds: framing, a reset, a client that stalls
            raise MalformedBody from error
        return bytes(body)
