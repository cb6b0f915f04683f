"""Connections that cannot keep others waiting: limits on their time, and room for many.

Whoever has sent a whole request waits until it is answered. A connection whose request is not
complete in time is closed with 408, and one whose answer is not read in time without a word. Past
``MOST_CONNECTIONS`` the one whose time ends first makes room: with 503 if its request is not
complete, without a word if its answer is unread or it sends no further request. If all answers are
still being made, the new one is refused with 503.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import HEADERS

__all__ = ["ANSWER_SECONDS", "MOST_CONNECTIONS", "REQUEST_SECONDS", "Connection"]

REQUEST_SECONDS = 10.0
ANSWER_SECONDS = 10.0
MOST_CONNECTIONS = 512
_PHRASES = {408: "Request Timeout", 503: "Service Unavailable"}


class Connection(H11Protocol):
    """uvicorn's HTTP protocol with limits on how long a client may take to send and to read."""

    timer: asyncio.TimerHandle | None = None
    #: Whether ``timer`` waits for an answer to be read, instead of for a request to arrive.
    unread = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # pause_writing as soon as a byte must wait
        self._watch()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def incomplete(self) -> bool:
        """Whether a request has begun, or is awaited, and has not arrived whole."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def idle(self) -> bool:
        """Whether all requests are answered; uvicorn closes it if no other one comes soon."""
        return self.timeout_keep_alive_task is not None

    @property
    def deadline(self) -> float | None:
        """When the client's time to send or to read ends; None while its answer is being made."""
        timers = (self.timer, self.timeout_keep_alive_task)
        return min((timer.when() for timer in timers if timer is not None), default=None)

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

    def give_way(self, status: int, message: str) -> None:
        """Close: in words if a request is awaited, at once if an answer is not read."""
        idle = self.idle
        self._unset_keepalive_if_required()
        if self.unread:
            self._stop_timer()
            self.transport.abort()  # close() would wait until all is read
        elif idle:
            self.transport.close()
        else:
            self.refuse(status, message)

    def _watch(self) -> None:
        """Let the time run while an answer is not read or a request is incomplete."""
        if self.unread != self.flow.write_paused:
            self._stop_timer()
            self.unread = self.flow.write_paused
        if not self.unread and (self.idle or not self.incomplete):
            self._stop_timer()
        elif self.timer is None:
            limit = ANSWER_SECONDS if self.unread else REQUEST_SECONDS
            self.timer = self.loop.call_later(limit, self._time_out)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _time_out(self) -> None:
        self.give_way(408, f"the request was not complete within {REQUEST_SECONDS:g} seconds.")

    def _make_room(self) -> None:
        others: Any = self.connections
        waiting = [each for each in others if each.deadline is not None]
        oldest = min(waiting, key=lambda each: each.deadline, default=self)
        text = f"more than {MOST_CONNECTIONS} connections are open; try again in a moment."
        oldest.give_way(503, text)
