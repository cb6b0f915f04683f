"""Refuse requests that do not come from the page itself.

The server listens on 127.0.0.1, which other machines cannot reach but any page in the user's
browser can. So:

    Host             must be the address printed: a name that an attacker points here (DNS
                     rebinding) is refused
    Origin           where there is one, must be the same address; so must Sec-Fetch-Site, except
                     for opening a page
    Content-Type     of a POST must be application/json, which no form can send
    body             at most 1 MB, counted while it arrives
    answers          carry a policy under which the page loads nothing from elsewhere, runs no
                     inline script and evaluates no text
"""

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._checks import MOST_BYTES

__all__ = ["HEADERS", "Guard", "TooLargeError"]

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
#: Of every answer.
HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class TooLargeError(Exception):
    """A body past the limit; whoever reads the body answers with 413 and the message."""

    def __init__(self) -> None:
        super().__init__(
            f"a request has at most {MOST_BYTES:,} bytes; paste the config, not the weights."
        )


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        if port == 80:  # which browsers leave out
            self.hosts |= {"127.0.0.1", "localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BYTES:
                raise TooLargeError
            return message

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0] not in dict(HEADERS)]
                message = {**message, "headers": kept + HEADERS}
            await send(message)

        await self.app(scope, limited, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason, or None for a request that may go on."""
        found: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts, origins = found.get("host", []), found.get("origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 421, "explore answers to the address that it printed, and to no other name."
        if any(
            origin.lower() not in {f"http://{host}" for host in self.hosts} for origin in origins
        ):
            return 403, "explore answers its own page only; this came from another one."
        site = found.get("sec-fetch-site", ["none"])
        inside = scope["path"].startswith("/api/")
        if inside and any(word not in ("same-origin", "none") for word in site):
            return 403, "explore answers its own page only; this came from another one."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, f"explore knows GET and POST; got {scope['method'][:20]!r}."
        if scope["method"] == "POST":
            return _body(found)
        return None


def _body(found: dict[str, list[str]]) -> tuple[int, str] | None:
    kinds = [value.partition(";")[0].strip().lower() for value in found.get("content-type", [])]
    if kinds != ["application/json"]:
        return 415, "explore takes application/json only."
    length = found.get("content-length", ["0"])[0]
    if length.isdecimal() and int(length[:20]) > MOST_BYTES:
        return 413, str(TooLargeError())
    return None


async def _answer(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    kind: list[Any] = [(b"content-type", b"application/json"), (b"connection", b"close")]
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*kind, length, *HEADERS]}
    )
    await send({"type": "http.response.body", "body": body})
