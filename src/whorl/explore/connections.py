"""Connections that cannot keep others waiting: a time limit for requests, and room for many.

Whoever has sent a whole request waits until it is answered. A connection whose request is not
complete in time is closed with 408. Past ``MOST_CONNECTIONS`` the one that has been sending its
request for longest makes room, with 503; if all are being answered, the new one is refused.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import HEADERS

__all__ = ["MOST_CONNECTIONS", "REQUEST_SECONDS", "Connection"]

REQUEST_SECONDS = 10.0
MOST_CONNECTIONS = 512
_PHRASES = {408: "Request Timeout", 503: "Service Unavailable"}


class Connection(H11Protocol):
    """uvicorn's HTTP protocol with a limit on the time that a request takes to arrive."""

    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def incomplete(self) -> bool:
        """Whether a request has begun, or is awaited, and has not arrived whole."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def refuse(self, status: int, message: str) -> None:
        """Answer in words and close; nothing of an answer has been sent before."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        body = json.dumps({"error": message}).encode()
        head = [f"HTTP/1.1 {status} {_PHRASES[status]}".encode(), b"connection: close"]
        head += [b"content-type: application/json", f"content-length: {len(body)}".encode()]
        head += [name + b": " + value for name, value in HEADERS]
        self.transport.write(b"\r\n".join([*head, b"", body]))
        self.transport.close()

    def _watch(self) -> None:
        """Let the time run while a request is incomplete."""
        if not self.incomplete:
            self._stop_timer()
        elif self.timer is None:
            self.timer = self.loop.call_later(REQUEST_SECONDS, self._time_out)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _time_out(self) -> None:
        text = f"the request was not complete within {REQUEST_SECONDS:g} seconds."
        self.refuse(408, text)

    def _make_room(self) -> None:
        others: Any = self.connections
        sending = [each for each in others if each.timer is not None]
        oldest = min(sending, key=lambda each: each.timer.when(), default=self)
        text = f"more than {MOST_CONNECTIONS} connections are open; try again in a moment."
        oldest.refuse(503, text)
