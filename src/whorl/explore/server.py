"""The web server: three pages, their files, and the JSON functions of ``api``.

The files of static/ are read when the server starts; no request reads from the disk.

    200   the result, or {"error": ...} for a wrong config or wrong numbers of the user
    4xx   {"error": ...} for a request that the page would never send
    500   {"error": ..., "fault": "whorl"} for a fault of whorl itself
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
from whorl.analysis.record import convert_to_plain
from whorl.configs import ConfigError

from . import api
from ._checks import BYTE_LIMIT, RequestError, format_error
from .state import ExplorerState

__all__ = ["HOST", "make_application", "make_config", "open_socket", "serve"]

HOST = "127.0.0.1"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Bytes are counted while they arrive; here a character beyond ASCII counts as four.
_REQUEST = JsonLimits("request", bytes=4 * BYTE_LIMIT, values=200_000, depth=64)
_PAGES = {"/": "index.html", "/models": "models.html", "/compare": "compare.html"}
_ANSWERS: dict[str, Callable[[ExplorerState, Any], dict[str, Any]]] = {
    "report": api.answer_report,
    "view": api.answer_view,
    "length": api.answer_length,
    "extend": api.answer_extend,
    "models": api.answer_models,
    "bias": api.answer_bias,
    "card": api.answer_card,
    "lab": api.answer_lab,
}


def make_application(state: ExplorerState, port: int) -> Any:
    """The ASGI application, behind the guard."""
    import_extra("starlette", by="whorl explore", extra="web")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    from .guard import RequestGuard, TooLargeError

    static = _load_static_files()

    def answer(document: dict[str, Any], status: int = 200) -> Response:
        return Response(_format_json(document), status, media_type="application/json")

    def file(name: str) -> Callable[[Request], Response]:
        def respond(request: Request) -> Response:
            content, kind = static[name]
            return Response(content, media_type=kind)

        return respond

    def started(request: Request) -> Response:
        return answer(api.answer_start(state))

    def call(function: Callable[[ExplorerState, Any], dict[str, Any]]) -> Any:
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
            except ConfigError as error:  # browsers report 4xx as an error of the page
                return answer({"error": format_error(error)})
            except RequestError as error:
                return answer({"error": format_error(error)}, 400)

        return respond

    def missing(request: Request, error: Exception) -> Response:
        if getattr(error, "status_code", 404) == 405:
            return answer({"error": "this address does not accept such requests."}, 405)
        return answer({"error": "there is nothing at this address."}, 404)

    def broken(request: Request, error: Exception) -> Response:
        return answer({"error": _describe_fault(error), "fault": "whorl"}, 500)

    routes = [Route(path, file(name), methods=["GET"]) for path, name in _PAGES.items()]
    routes += [Route(f"/static/{name}", file(name), methods=["GET"]) for name in static]
    routes.append(Route("/api/start", started, methods=["GET"]))
    routes += [Route(f"/api/{n}", call(f), methods=["POST"]) for n, f in _ANSWERS.items()]
    handlers: Any = {404: missing, 405: missing, Exception: broken}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return RequestGuard(app, port)


def open_socket(port: int | None) -> socket.socket:
    """A socket that listens on the loopback address, on this port or a free one."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(sys.platform != "win32"))
    try:
        found.bind((HOST, port or 0))
        found.listen(256)  # so that the address works as soon as it is printed
    except OSError as error:
        found.close()
        raise ValueError(
            f"--port: {port} cannot be used ({error.strerror}); leave it out for a free one."
        ) from None
    return found


def make_config(state: ExplorerState, port: int) -> Any:
    """The settings of uvicorn for the application on this port."""
    uvicorn = import_extra("uvicorn", by="whorl explore", extra="web")
    app = make_application(state, port)
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


def serve(
    state: ExplorerState, *, port: int | None = None, browser: bool = True, page: str = ""
) -> None:
    """Serve the pages until Ctrl-C, and print the address of one, such as "models"."""
    uvicorn = import_extra("uvicorn", by="whorl explore", extra="web")
    import_extra("starlette", by="whorl explore", extra="web")
    with open_socket(port) as found:
        at = found.getsockname()[1]
        address = f"http://{HOST}:{at}/{page}"
        config = make_config(state, at)
        print(f"whorl explore: {address}  (Ctrl-C ends it)", flush=True)
        if browser:
            threading.Timer(0.3, webbrowser.open, (address,)).start()
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after it has stopped
            uvicorn.Server(config).run(sockets=[found])


def _load_static_files() -> dict[str, tuple[bytes, str]]:
    found = {}
    for entry in files(__package__).joinpath("static").iterdir():
        kind = next((kind for end, kind in _KINDS.items() if entry.name.endswith(end)), None)
        if kind is not None:
            found[entry.name] = (entry.read_bytes(), kind)
    return found


def _describe_fault(error: Exception) -> str:
    """The message for a fault of whorl itself; uvicorn prints the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}whorl{os.sep}" in frame.filename]
    at = (ours or frames)[-1:]
    where = "".join(f", at {Path(frame.filename).name} line {frame.lineno}" for frame in at)
    what = f"{type(error).__name__}: {str(error)[:300]}".rstrip(". ")
    return (
        "This is a fault of whorl, not of your config. Please report it with the config and this"
        f" text: whorl {whorl.__version__}, {what}{where}. The terminal shows the traceback."
    )


def _format_json(document: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    except ValueError:  # JSON has no infinity
        text = json.dumps(convert_to_plain(document), allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
