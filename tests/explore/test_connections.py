"""Many connections at once, and those that never send a whole request."""

import http.client
import json
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from whorl.explore import connections

from .page import until

BODY = b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n{"


def place(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
    return host, int(port)


def connect(address: str, sent: bytes) -> socket.socket:
    found = socket.create_connection(place(address), timeout=30)
    found.sendall(sent)
    return found


def get(address: str, path: str = "api/start") -> int:
    with urllib.request.urlopen(address + path, timeout=30) as answer:
        return int(answer.status)


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """Status and message of an answer, read to its end."""
    found = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), str(json.loads(body)["error"])


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("sent", ["nothing", "header", "body"])
def test_half_sent_requests_keep_nobody_waiting(address: str, opened: ExitStack, sent: str) -> None:
    host, port = place(address)
    header = b"POST /api/view HTTP/1.1\r\nhost: %s:%d\r\n" % (host.encode(), port)
    begun = {"nothing": b"", "header": header, "body": header + BODY}[sent]
    waiting = [opened.enter_context(connect(address, begun)) for _ in range(70)]
    assert [get(address) for _ in range(3)] == [200, 200, 200]
    waiting[0].setblocking(False)
    with pytest.raises(BlockingIOError):  # which is still open
        waiting[0].recv(1)


def test_two_hundred_at_once_are_all_answered(address: str) -> None:
    with ThreadPoolExecutor(200) as pool:
        found = list(pool.map(lambda _: get(address), range(200)))
    assert found == [200] * 200


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost:", b"all but the body"])
def test_a_request_that_does_not_arrive_is_closed_in_words(
    address: str, opened: ExitStack, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    if sent.startswith(b"all"):
        host, port = place(address)
        sent = b"POST /api/view HTTP/1.1\r\nhost: %s:%d\r\n" % (host.encode(), port) + BODY
    connection = opened.enter_context(connect(address, sent))
    status, message = answer_of(connection)
    assert (status, message) == (408, "the request was not complete within 0.2 seconds.")


def test_a_connection_that_is_kept_has_its_time_for_every_request(
    address: str, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = place(address)
    whole = b"GET /api/start HTTP/1.1\r\nhost: %s:%d\r\n\r\n" % (host.encode(), port)
    connection = opened.enter_context(connect(address, whole[:20]))
    own, timers = connection.getsockname()[1], list[object]()
    watch = connections.Connection._watch

    def watched(self: connections.Connection) -> None:
        watch(self)
        if self.client is not None and self.client[1] == own:
            timers.append(self.timer)

    monkeypatch.setattr(connections.Connection, "_watch", watched)
    for _ in range(2):
        connection.sendall(whole[20:])
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200
        answer.read()
        assert timers[-1] is None  # nothing runs while the answer is on its way, or after it
        connection.sendall(whole[:20])
        until(lambda: timers[-1] is not None)


def test_past_the_most_the_oldest_half_sent_one_makes_room(
    address: str, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 5)
    waiting = [opened.enter_context(connect(address, b"")) for _ in range(5)]
    assert get(address) == 200
    status, message = answer_of(waiting[0])
    assert (status, message) == (
        503,
        "more than 5 connections are open; try again in a moment.",
    )
    assert get(address) == 200
