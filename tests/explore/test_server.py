"""The server over HTTP: what it serves, and requests that a hostile page or program could send."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whorl.explore import server
from whorl.explore._checks import BYTE_LIMIT
from whorl.explore.state import ExplorerState, load_given_config

pytest.importorskip("starlette")
testclient = pytest.importorskip("starlette.testclient")

ADDRESS = "http://127.0.0.1:8123"
VIEW = {"source": {"preset": "llama-3.1-8b"}}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with testclient.TestClient(
        server.make_application(ExplorerState(), 8123), base_url=ADDRESS
    ) as found:
        yield found


@pytest.mark.parametrize(
    "path", ["/", "/models", "/compare", "/static/app.js", "/static/style.css"]
)
def test_pages_and_their_policy(client: Any, path: str) -> None:
    found = client.get(path)
    assert found.status_code == 200
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert found.headers["cache-control"] == "no-store"


def test_pages_name_nothing_from_elsewhere() -> None:
    for name, (content, _) in server._load_static_files().items():
        text = content.decode()
        for address in re.findall(r"https?://[^\s\"'`]+", text):
            assert address.startswith("http://www.w3.org/2000/svg"), (name, address)
        assert "eval(" not in text
        assert "innerHTML" not in text
        assert not re.search(r"\bstyle=|\son[a-z]+=|<script>", text), name


def test_a_view_over_http(client: Any) -> None:
    found = client.post("/api/view", json=VIEW)
    assert found.status_code == 200
    assert len(found.json()["curves"][0]["wavelengths"]) == 64
    assert client.get("/api/start").json()["preset"] == "llama-3.1-8b"


def test_bad_requests_have_a_message(client: Any) -> None:
    found = client.post("/api/view", json={"source": {"preset": "no such"}})
    assert found.status_code == 200  # a browser would count 4xx as an error of the page
    assert found.json()["error"].startswith("There is no preset 'no such'")
    found = client.post("/api/view", json={"source": 3})
    assert found.status_code == 400
    assert found.json()["error"] == "Source must be one of preset, text, given and other."


@pytest.mark.parametrize(
    ("wrong", "name"), [(KeyError("nonesuch"), "KeyError"), (ValueError("nonesuch"), "ValueError")]
)
def test_a_mistake_of_whorl_says_that_it_is_one(
    monkeypatch: pytest.MonkeyPatch, wrong: Exception, name: str
) -> None:
    def broken(state: ExplorerState, request: Any) -> dict[str, Any]:
        raise wrong

    monkeypatch.setitem(server._ANSWERS, "view", broken)
    app = server.make_application(ExplorerState(), 8123)
    with testclient.TestClient(app, base_url=ADDRESS, raise_server_exceptions=False) as client:
        found = client.post("/api/view", json=VIEW)
    assert found.status_code == 500
    assert found.json()["fault"] == "whorl"
    words = found.json()["error"]
    assert words.startswith("This is a fault of whorl, not of your config. Please report it")
    assert re.search(rf"whorl \d\S+, {name}: '?nonesuch'?, at \w+\.py line \d+\.", words)
    assert "content-security-policy" in found.headers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8123",
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost:9",
        "127.0.0.1:8123.evil.example",
        "[::1]:8123",
        "",
    ],
)
def test_other_names_are_refused(client: Any, host: str) -> None:
    found = client.get("/", headers={"host": host})
    assert found.status_code == 421
    assert "no other name" in found.json()["error"]
    assert client.get("/", headers={"host": "LOCALHOST:8123"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:8123"]
)
def test_other_origins_are_refused(client: Any, origin: str) -> None:
    found = client.post("/api/view", json=VIEW, headers={"origin": origin})
    assert found.status_code == 403
    assert "came from another" in found.json()["error"]
    assert client.post("/api/view", json=VIEW, headers={"origin": ADDRESS}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_but_not_ask(client: Any, site: str) -> None:
    headers = {"sec-fetch-site": site}
    assert client.get("/", headers=headers).status_code == 200
    assert client.get("/api/start", headers=headers).status_code == 403
    assert client.post("/api/view", json=VIEW, headers=headers).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
def test_only_json_is_taken(client: Any, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    found = client.post("/api/view", content=json.dumps(VIEW), headers=headers)
    assert found.status_code == 415
    assert "application/json only" in found.json()["error"]


def post(client: Any, body: Any, **headers: str) -> Any:
    return client.post(
        "/api/view", content=body, headers={"content-type": "application/json", **headers}
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 300_000,
        b"1" * 200_000,
        b'{"source":' * 50_000,
    ],
)
def test_bodies_that_are_not_json(client: Any, body: bytes) -> None:
    found = post(client, body)
    assert found.status_code == 400
    assert "not JSON" in found.json()["error"]


def test_large_bodies_are_refused_by_their_claim_and_by_count(client: Any) -> None:
    large = json.dumps({"source": {"text": "x" * BYTE_LIMIT}})
    assert post(client, large).status_code == 413

    def stream() -> Iterator[bytes]:
        for _ in range(3):
            yield b" " * (BYTE_LIMIT // 2)

    found = post(client, stream())
    assert found.status_code == 413
    assert "at most 1,000,000 bytes" in found.json()["error"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 10_000, "{" + '"a":1,' * 100_000, "9" * 99_999]
)
def test_hostile_configs_are_refused_soon(client: Any, text: str) -> None:
    for call in ("view", "report"):
        found = client.post(f"/api/{call}", json={"source": {"text": text}})
        assert found.status_code == 200
        assert "text" in found.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
        "/etc/passwd",
        "/api/",
        "/api/nonesuch",
        "/openapi.json",
    ],
)
def test_nothing_else_is_served(client: Any, path: str) -> None:
    found = client.get(path)
    assert found.status_code == 404
    assert "nothing at this address" in found.json()["error"]
    assert "content-security-policy" in found.headers


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(client: Any, method: str) -> None:
    found = client.request(method, "/api/view", headers={"origin": ADDRESS})
    assert found.status_code == 405
    assert "access-control-allow-origin" not in found.headers
    found = client.get("/api/view")
    assert found.status_code == 405
    assert found.json()["error"] == "this address does not accept such requests."


def test_markup_in_a_config_is_data(client: Any) -> None:
    config = {"model_type": "<img src=x onerror=alert(1)>", "hidden_size": 8}
    found = client.post("/api/report", json={"source": {"text": json.dumps(config)}})
    assert found.headers["content-type"] == "application/json"


def test_websockets_are_refused(client: Any) -> None:
    with pytest.raises(Exception), client.websocket_connect("/"):  # noqa: B017, PT011
        pass


def test_a_config_given_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4})
    )
    state = ExplorerState(given=load_given_config(str(path)))
    with testclient.TestClient(server.make_application(state, 8123), base_url=ADDRESS) as client:
        assert client.get("/api/start").json()["given"] == "config.json"
        found = client.post("/api/view", json={"source": {"given": True}})
        assert len(found.json()["curves"][0]["wavelengths"]) == 8
        found = client.post("/api/report", json={"source": {"given": True}})
        assert found.json()["name"] == "config.json"


def test_a_port_in_use_is_an_error_with_a_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"--port: {port} cannot be used .* leave it out"):
            server.open_socket(port)


def test_it_listens_on_loopback_only() -> None:
    with server.open_socket(None) as found:
        assert found.getsockname()[0] == "127.0.0.1"


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
def test_the_command_prints_its_address_answers_and_ends() -> None:
    pytest.importorskip("uvicorn")
    import signal
    import urllib.request

    code = "import sys; from whorl.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "explore", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert address is not None, line + process.stderr.read()
        with urllib.request.urlopen(address[0], timeout=20) as answer:
            assert b"whorl explore" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    from whorl.cli import main

    assert main(["explore", "llama-3.1-8", "--no-open"]) == 2
    assert "did you mean 'llama-3.1-8b'" in capsys.readouterr().err


def test_a_folder_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tomli_w")
    from whorl.cli import main

    assert main(["explore", "--no-open", "--runs", str(tmp_path)]) == 2
    assert "contains no runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 1, "rows": [3]}',
        '{"format": 1, "rows": [], "settings": []}',
    ],
)
def test_damaged_results(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    pytest.importorskip("tomli_w")
    from whorl.cli import main

    (tmp_path / "comparison.json").write_text(text)
    assert main(["explore", "--no-open", "--runs", str(tmp_path)]) == 2
    assert "comparison" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_it_names_the_pip_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    from whorl.cli import main

    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["explore", "--no-open"]) == 1
    assert f"whorl explore needs {missing}: pip install 'whorl[web]'." in capsys.readouterr().err


def test_a_request_that_ends_before_its_body_is_no_fault() -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = {"host": "127.0.0.1:8123", "content-type": "application/json", "content-length": "5"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/view",
        "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        "query_string": b"",
    }
    asyncio.run(server.make_application(ExplorerState(), 8123)(scope, receive, send))
    assert sent[0]["status"] == 400
    assert b"ended before its body" in sent[1]["body"]
