"""Refuse requests that do not come from the page itself.

The server listens on 127.0.0.1, which other machines cannot reach but any page in the user's
browser can. So:

    Host             must be the address that was printed: a name that an attacker resolves to this
                     machine (DNS rebinding) is refused
    Origin           must be the same address, if it is there; so must Sec-Fetch-Site, except for
                     opening a page
    Content-Type     of a POST must be application/json, which no form can send
    body             at most 1 MB, counted while it arrives
    responses        have a content security policy: the page loads nothing from elsewhere, runs no
                     inline script and evaluates no text
"""

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._checks import BYTE_LIMIT

__all__ = ["HEADERS", "RequestGuard", "TooLargeError"]

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' blob: data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_OTHER_PAGE = "explore accepts requests of its own page only; this came from another one."
#: Headers of every response.
HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class TooLargeError(Exception):
    """A body larger than the limit; the reader of the body responds with 413 and the message."""

    def __init__(self) -> None:
        super().__init__(
            f"a request may have at most {BYTE_LIMIT:,} bytes; paste the config, not the weights."
        )


class RequestGuard:
    """ASGI middleware that refuses requests from elsewhere, and adds headers to responses."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        if port == 80:  # browsers leave it out of the address
            self.hosts |= {"127.0.0.1", "localhost"}

    async def __call__(self, connection: Scope, receive: Receive, send: Send) -> None:
        if connection["type"] == "lifespan":
            await self.app(connection, receive, send)
            return
        if connection["type"] != "http":  # no websockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._find_refusal(connection)
        if refusal is not None:
            await _send_error(send, *refusal)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > BYTE_LIMIT:
                raise TooLargeError
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [pair for pair in message["headers"] if pair[0] not in dict(HEADERS)]
                message = {**message, "headers": others + HEADERS}
            await send(message)

        await self.app(connection, receive_limited, send_with_headers)

    def _find_refusal(self, connection: Scope) -> tuple[int, str] | None:
        """The status and the reason to refuse a request, or None if it is allowed."""
        found: dict[str, list[str]] = {}
        for name, value in connection["headers"]:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts, origins = found.get("host", []), found.get("origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 421, "explore serves only the address that it printed, and no other name."
        if any(
            origin.lower() not in {f"http://{host}" for host in self.hosts} for origin in origins
        ):
            return 403, _OTHER_PAGE
        site = found.get("sec-fetch-site", ["none"])
        is_api = connection["path"].startswith("/api/")
        if is_api and any(word not in ("same-origin", "none") for word in site):
            return 403, _OTHER_PAGE
        if connection["method"] not in ("GET", "HEAD", "POST"):
            return 405, f"explore accepts GET and POST; got {connection['method'][:20]!r}."
        if connection["method"] == "POST":
            return _check_body(found)
        return None


def _check_body(found: dict[str, list[str]]) -> tuple[int, str] | None:
    kinds = [value.partition(";")[0].strip().lower() for value in found.get("content-type", [])]
    if kinds != ["application/json"]:
        return 415, "explore accepts application/json only."
    length = found.get("content-length", ["0"])[0]
    if length.isdecimal() and int(length[:20]) > BYTE_LIMIT:
        return 413, str(TooLargeError())
    return None


async def _send_error(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    kind: list[Any] = [(b"content-type", b"application/json"), (b"connection", b"close")]
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*kind, length, *HEADERS]}
    )
    await send({"type": "http.response.body", "body": body})
