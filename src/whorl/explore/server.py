"""The addresses: two pages, their files, and the JSON functions of ``api``.

Files are those of static/, read when the server starts, by name; no request reaches the disk.

    200   the answer, or {"error": ...} where a config or numbers of the user make no sense
    4xx   {"error": ...} for a request that the page would not send
    500   {"error": ..., "fault": "whorl"} for a mistake of whorl's own
"""

import json
import os
import socket
import sys
import threading
import traceback
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import whorl
from whorl._support.bounded_json import JsonLimits, parse_json
from whorl._support.extras import import_extra
from whorl.analysis.record import plain
from whorl.configs import ConfigError

from . import api
from ._checks import MOST_BYTES, RequestError, plainly
from .state import State

__all__ = ["HOST", "application", "configure", "listen", "serve"]

HOST = "127.0.0.1"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Bytes are counted while they arrive; those beyond ASCII count here as four.
_REQUEST = JsonLimits("request", bytes=4 * MOST_BYTES, values=200_000, depth=64)
_PAGES = {"/": "index.html", "/compare": "compare.html"}
_CALLS: dict[str, Callable[[State, Any], dict[str, Any]]] = {
    "report": api.report,
    "view": api.view,
    "length": api.length,
    "bias": api.bias,
    "card": api.card,
    "lab": api.lab,
}


def application(state: State, port: int) -> Any:
    """The ASGI application, guarded."""
    import_extra("starlette", by="whorl explore", extra="web")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    from .guard import Guard, TooLargeError

    static = _static()

    def answer(document: dict[str, Any], status: int = 200) -> Response:
        return Response(_json(document), status, media_type="application/json")

    def file(name: str) -> Callable[[Request], Response]:
        def respond(request: Request) -> Response:
            content, kind = static[name]
            return Response(content, media_type=kind)

        return respond

    def started(request: Request) -> Response:
        return answer(api.start(state))

    def call(function: Callable[[State, Any], dict[str, Any]]) -> Any:
        async def respond(request: Request) -> Response:
            try:
                given = parse_json(await request.body(), _REQUEST)
            except TooLargeError as error:
                return answer({"error": str(error)}, 413)
            except ClientDisconnect:  # nobody is left to read it
                return answer({"error": "the request ended before its body did."}, 400)
            except ValueError:
                return answer({"error": "the request is not JSON."}, 400)
            try:
                return answer(await run_in_threadpool(function, state, given))
            except ConfigError as error:  # a browser would count 4xx as an error of the page
                return answer({"error": plainly(error)})
            except RequestError as error:
                return answer({"error": plainly(error)}, 400)

        return respond

    def missing(request: Request, error: Exception) -> Response:
        if getattr(error, "status_code", 404) == 405:
            return answer({"error": "this address does not take such requests."}, 405)
        return answer({"error": "there is nothing at this address."}, 404)

    def broken(request: Request, error: Exception) -> Response:
        return answer({"error": _fault(error), "fault": "whorl"}, 500)

    routes = [Route(path, file(name), methods=["GET"]) for path, name in _PAGES.items()]
    routes += [Route(f"/static/{name}", file(name), methods=["GET"]) for name in static]
    routes.append(Route("/api/start", started, methods=["GET"]))
    routes += [Route(f"/api/{n}", call(f), methods=["POST"]) for n, f in _CALLS.items()]
    handlers: Any = {404: missing, 405: missing, Exception: broken}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, port)


def listen(port: int | None) -> socket.socket:
    """A socket on the loopback address only; without a port, on a free one."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(sys.platform != "win32"))
    try:
        found.bind((HOST, port or 0))
        found.listen(256)  # so that the address works from when it is printed
    except OSError as error:
        found.close()
        raise ValueError(
            f"--port: {port} cannot be used ({error.strerror}); leave it out for a free one."
        ) from None
    return found


def configure(state: State, port: int) -> Any:
    """The settings of uvicorn, for the application on this port."""
    uvicorn = import_extra("uvicorn", by="whorl explore", extra="web")
    app = application(state, port)
    from .connections import Connection

    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=Connection,
        timeout_graceful_shutdown=1,
    )


def serve(state: State, *, port: int | None = None, browser: bool = True) -> None:
    """Serve until Ctrl-C; the address is the only thing printed."""
    uvicorn = import_extra("uvicorn", by="whorl explore", extra="web")
    import_extra("starlette", by="whorl explore", extra="web")
    with listen(port) as found:
        at = found.getsockname()[1]
        address = f"http://{HOST}:{at}/"
        config = configure(state, at)
        print(f"whorl explore: {address}  (Ctrl-C ends it)", flush=True)
        if browser:
            threading.Timer(0.3, webbrowser.open, (address,)).start()
        with suppress(KeyboardInterrupt):  # which uvicorn raises again once it has ended
            uvicorn.Server(config).run(sockets=[found])


def _static() -> dict[str, tuple[bytes, str]]:
    found = {}
    for entry in files(__package__).joinpath("static").iterdir():
        kind = next((kind for end, kind in _KINDS.items() if entry.name.endswith(end)), None)
        if kind is not None:
            found[entry.name] = (entry.read_bytes(), kind)
    return found


def _fault(error: Exception) -> str:
    """What to say of a mistake in whorl itself, and to report; uvicorn prints the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}whorl{os.sep}" in frame.filename]
    at = (ours or frames)[-1:]
    where = "".join(f", at {Path(frame.filename).name} line {frame.lineno}" for frame in at)
    what = f"{type(error).__name__}: {str(error)[:300]}".rstrip(". ")
    return (
        "This is a mistake of whorl, not of your config. Please report it with the config and these"
        f" words: whorl {whorl.__version__}, {what}{where}. The terminal shows the traceback."
    )


def _json(document: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    except ValueError:  # an infinity, which JSON does not have
        text = json.dumps(plain(document), allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
