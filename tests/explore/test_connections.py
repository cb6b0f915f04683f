"""Many connections at once, and those that never send a whole request."""

import http.client
import json
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from whorl.explore import connections, server

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


def ask(address: str, opened: ExitStack, times: int) -> socket.socket:
    """A connection that asks several times for a file and reads nothing; it has little room."""
    found = opened.enter_context(socket.socket())
    found.settimeout(30)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = place(address)
    found.connect((host, port))
    request = b"GET /static/app.js HTTP/1.1\r\nhost: %s:%d\r\n\r\n"
    found.sendall(request % (host.encode(), port) * times)
    return found


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> dict[int, connections.Connection]:
    """Connections with an unread answer, by the client's port; the system keeps little of it."""
    found: dict[int, connections.Connection] = {}
    made, watch = connections.Connection.connection_made, connections.Connection._watch

    def limit(self: connections.Connection, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made(self, transport)

    def record(self: connections.Connection) -> None:
        watch(self)
        if self.unread and self.client is not None:
            found[self.client[1]] = self

    monkeypatch.setattr(connections.Connection, "connection_made", limit)
    monkeypatch.setattr(connections.Connection, "_watch", record)
    return found


def test_clients_that_never_read_keep_nobody_waiting(
    address: str, opened: ExitStack, unread: dict[int, connections.Connection]
) -> None:
    asked = [ask(address, opened, times=2) for _ in range(520)]
    with urllib.request.urlopen(address + "api/start", timeout=5) as answer:
        assert answer.status == 200
    ports = {connection.getsockname()[1] for connection in asked}
    until(lambda: len(ports & unread.keys()) > 400)  # some made room before they were answered


def test_clients_with_answers_in_the_buffers_of_the_system_make_room(
    address: str, opened: ExitStack
) -> None:
    asked = [ask(address, opened, times=1) for _ in range(520)]
    with urllib.request.urlopen(address + "api/start", timeout=5) as answer:
        assert answer.status == 200
    assert len(asked) > connections.MOST_CONNECTIONS


def test_an_idle_connection_makes_room_after_its_whole_answer(
    address: str, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = ask(address, opened, times=1)
    idle.recv(1, socket.MSG_PEEK)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 1)
    assert get(address) == 200
    answer = http.client.HTTPResponse(idle)
    answer.begin()
    assert len(answer.read()) == int(answer.headers["content-length"])
    assert idle.recv(1) == b""


def test_an_answer_that_is_not_read_in_time_is_dropped(
    address: str,
    opened: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    unread: dict[int, connections.Connection],
) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.2)
    connection = ask(address, opened, times=2)
    until(lambda: connection.getsockname()[1] in unread)
    held = unread[connection.getsockname()[1]]
    until(lambda: held not in held.connections)
    with suppress(ConnectionResetError):
        read = sum(map(len, iter(lambda: connection.recv(65536), b"")))
        assert read < len(server._load_static_files()["app.js"][0])


def test_a_request_that_follows_an_unread_answer_has_its_time(
    address: str, opened: ExitStack, unread: dict[int, connections.Connection]
) -> None:
    connection = ask(address, opened, times=1)
    until(lambda: connection.getsockname()[1] in unread)
    held = unread[connection.getsockname()[1]]
    connection.sendall(b"GET / HTTP/1.1\r\n")
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    until(lambda: not held.unread)
    until(lambda: held.timer is not None)
