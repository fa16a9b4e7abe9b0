"""The server: unused routes are closed, files may be kept for ever, nothing is loaded from elsewhere."""

import asyncio
import dataclasses
import gzip
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from playground.settings import ROOT, Settings
from playground.ui import frontend, server
from playground.ui.assets import Assets
from tests.ui import loops
from tests.ui.fake_engine import FakeEngine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def base():
    port = free_port()
    demo = server.serve(FakeEngine(), dataclasses.replace(Settings(), port=port))
    yield f"http://127.0.0.1:{port}"
    demo.close(verbose=False)


def fetch(url, data=None, **headers):
    request = urllib.request.Request(url, data=data, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers.items()), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers.items()), error.read()


@pytest.mark.parametrize(
    "path",
    ["/gradio_api/upload", "/gradio_api/upload_progress", "/gradio_api/file=app.py", "/gradio_api/proxy=http://x",
     "/gradio_api/component_server", "/gradio_api/vibe-code", "/gradio_api/stream/a/b/c/d", "/gradio_api/deep_link",
     "/login", "/logout", "/monitoring", "/openapi.json", "/docs", "/gradio_api/token", "/playground-assets/nope.js",
     "/..%2fapp.py", "/assets/..%2f..%2fpackage.json"],
)  # fmt: skip
def test_what_the_page_does_not_use_is_not_there(base, path):
    assert fetch(base + path)[0] in (400, 403, 404)
    assert fetch(base + path, data=b"{}", content_type="application/json")[0] in (400, 403, 404, 405)


def test_uploads_are_refused(base):
    body = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nhi\r\n--b--\r\n'
    assert fetch(base + "/gradio_api/upload", data=body, content_type="multipart/form-data; boundary=b")[0] == 404


def test_the_page_names_no_other_host(base):
    status, headers, body = fetch(base + "/")
    assert status == 200 and headers["x-content-type-options"] == "nosniff"
    html = body.decode()
    loaded = re.findall(r'(?:src|href)="(https?://[^"]+)"', html) + re.findall(r"url\('(https?://[^']+)'\)", html)
    assert [url for url in loaded if not url.startswith(base)] == []
    assert "fonts.googleapis" not in html and "cdnjs" not in html


def test_the_page_comes_compressed_with_our_head_in_it(base):
    _, headers, body = fetch(base + "/", accept_encoding="gzip")
    html = gzip.decompress(body).decode()
    assert headers["content-encoding"] == "gzip" and len(body) < 80_000
    assert html == fetch(base + "/")[2].decode()
    top = html[: html.index("window.gradio_config")]
    assert 'as="font"' in top and "window.tpDims" in top and top.count("modulepreload") > 20
    assert html.index("--paper: #F2F5F7") < html.index("</head>")


def test_the_page_leaves_out_what_only_programs_call_and_tells_it_to_who_asks(base):
    """Its size is paid for by every visit. Clients read /config; ?view=api is Gradio's own list of the endpoints."""
    told, whole, config = (fetch(base + path)[2].decode() for path in ("/", "/?view=api", "/config"))
    for name in ("run_kernel", "chat"):
        assert f'"api_name":"{name}"' in whole and f'"api_name":"{name}"' in config
        assert f'"api_name":"{name}"' not in told
    assert "api_info_as_input" in whole and "api_info_as_input" not in told
    page = json.loads(re.search(r"gradio_config = (\{.*?\});</script>", told, re.DOTALL)[1])
    known = {c["id"] for c in page["components"]} | {page["layout"]["id"]}
    events = page["dependencies"]
    assert {part for e in events for part in (*e["inputs"], *e["outputs"])} <= known
    assert placed(page["layout"]) == placed(page["page"][""]["layout"]) <= known
    assert set(page["page"][""]["components"]) <= known
    assert {e["trigger_after"] for e in events} - {None} <= {e["id"] for e in events}
    assert page["page"][""]["dependencies"] == [e["id"] for e in events]


def placed(node):
    return {node["id"]}.union(*map(placed, node.get("children") or []))


def test_each_address_of_the_page_has_a_document_of_its_own(base):
    """It is made once for each name that the page is reached by, and names that one."""
    port = base.rsplit(":", 1)[1]
    for name in ("localhost", "127.0.0.1", "localhost"):
        html = fetch(base + "/", host=f"{name}:{port}")[2].decode()
        assert f'"root":"http://{name}:{port}"' in html
    assert '"root":"https://localhost' in fetch(base + "/", host="localhost", x_forwarded_proto="https")[2].decode()


def test_a_build_of_gradio_that_looks_different_is_left_to_its_own_loader(tmp_path, monkeypatch):
    monkeypatch.setattr(frontend, "BUILD", tmp_path)
    for document, names in (("<script src='./main.js'>", []), ('<script type="module" src="./assets/a.js">', ["a.js"])):
        (tmp_path / "index.html").write_text(document)
        (tmp_path / "assets").mkdir(exist_ok=True)
        (tmp_path / "assets" / "a.js").write_text("import('./b.js'),chatbot:{}")
        assert frontend.files(["html", "chatbot"]) == names


def test_our_files_are_hashed_and_kept(base):
    html = fetch(base + "/")[2].decode()
    font = re.search(r"/playground-assets/next\.[0-9a-f]{16}\.woff2", html)[0]
    status, headers, body = fetch(base + font)
    assert status == 200 and "immutable" in headers["cache-control"]
    assert body == (ROOT / "assets" / "next.woff2").read_bytes()


def test_plotly_comes_from_here_and_compressed(base):
    url = re.search(r"/playground-assets/plotly\.min\.[0-9a-f]{16}\.js", fetch(base + "/config")[2].decode())[0]
    status, headers, body = fetch(base + url, accept_encoding="gzip")
    assert status == 200 and headers["content-encoding"] == "gzip"
    assert gzip.decompress(body).startswith(b"/**\n* plotly.js") and len(body) < 2_000_000


def test_queued_functions_are_closed_to_direct_calls(base):
    status, _, body = fetch(base + "/gradio_api/run/run_kernel", data=b'{"data": ["vector_add"]}',
                            content_type="application/json")  # fmt: skip
    assert status in (401, 403, 404, 422, 500) and b"outputs" not in body


def test_no_handler_of_the_page_is_an_endpoint(base):
    info = fetch(base + "/gradio_api/info")[2].decode()
    names = set(re.findall(r'"/(\w+)":\{"parameters"', info))
    assert names >= {"list_kernels", "run_kernel", "bench_kernel"}
    assert [name for name in names if not name.endswith(("_kernel", "_kernels"))] == ["chat"]


def test_openais_api_is_beside_the_page_and_closed_to_other_sites(base):
    """A page of another site may neither read an answer nor ask for one."""
    status, headers, body = fetch(base + "/v1/models")
    assert status == 200 and b"SmolLM2-135M-Instruct" in body and headers["x-content-type-options"] == "nosniff"
    status, _, body = fetch(base + "/v1/embeddings", data=b"{}", content_type="application/json")
    assert status == 404 and b'"error"' in body
    _, headers, _ = fetch(base + "/v1/models", origin="https://elsewhere.example")
    assert not {k.lower() for k in headers} & {"access-control-allow-origin"}
    asked = b'{"model": "gpt-4", "messages": [{"role": "user", "content": "Hi"}]}'
    assert fetch(base + "/v1/chat/completions", data=asked, content_type="text/plain")[0] == 415


@pytest.mark.parametrize(
    ("name", "origin"),
    [("evil.example", None), ("evil.example:7860", "http://evil.example:7860"), ("192.168.0.7", None), ("[::1", None),
     (None, "https://evil.example"), (None, "null"), ("127.0.0.1.evil.example", None), ("localhost.evil", None)],
)  # fmt: skip
def test_no_other_site_reaches_a_page_that_runs_edits(base, name, origin):
    """Also not through a name of its own that it points at this machine; `null` is a page in a sandboxed frame."""
    given = {k: v for k, v in (("host", name), ("origin", origin)) if v}
    for path in ("/", "/config", "/gradio_api/mcp/", "/v1/models"):
        status, headers, body = fetch(base + path, **given)
        assert status == 403 and b"PLAYGROUND_EDIT=off" in body and headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]:7860", "play.localhost:80", "127.8.8.8"])
def test_every_name_of_this_machine_is_served(base, name):
    assert fetch(base + "/config", host=name)[0] == 200
    assert fetch(base + "/config", host=name, origin=f"http://{name}")[0] == 200


def test_a_page_without_edits_is_served_under_any_name():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["path"])

    closed = server.Harden(app, Assets(), None, alone=dataclasses.replace(Settings(), edit="off").edits)
    loops.run(closed({"type": "http", "path": "/", "headers": [(b"host", b"play.example")]}, None, None))
    assert seen == ["/"]


def test_a_taken_port_is_one_line():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = subprocess.run([sys.executable, "app.py", "--port", str(port)], capture_output=True, text=True, cwd=ROOT,
                              timeout=120)  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.strip() == (
        f"Port {port} on 127.0.0.1 cannot be used (Address already in use): stop what holds it, or choose another "
        "with --port."
    )


def test_programs_call_it_over_the_api(base):
    from gradio_client import Client

    client = Client(base, verbose=False, analytics_enabled=False)
    found = client.predict("add_rms_norm", {"rows": 8, "n": 100}, "float32", api_name="/run_kernel")
    assert found["ok"] and found["choice"]["dims"] == {"rows": 8, "n": 100}
    assert client.predict("add_rms_norm", {"rows": -1}, api_name="/run_kernel")["error"]["argument"] == "rows"


def test_agents_call_it_over_mcp(base):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async def call():
        async with (
            streamablehttp_client(f"{base}/gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            answer = await session.call_tool("run_kernel", {"kernel": "vector_add", "dims": {"n": 100}})
            return tools, answer.content[0].text

    tools, text = loops.run(asyncio.wait_for(call(), 30))
    assert {"list_kernels", "run_kernel", "bench_kernel"} <= set(tools)
    assert tools["run_kernel"].inputSchema["properties"]["kernel"]["type"] == "string"
    assert "judge its answer" in tools["run_kernel"].description and "'ok': True" in text


def test_an_open_page_does_not_hold_up_the_end():
    """Each open page holds a heartbeat that never ends by itself; Gradio waits five seconds for it."""
    port, log = free_port(), logging.getLogger("uvicorn.error")
    level, demo = log.level, server.serve(FakeEngine(), dataclasses.replace(Settings(), port=port))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/gradio_api/heartbeat/one", timeout=20) as heart:
            assert heart.readline() == b"data: ALIVE\n"
            began = time.monotonic()
            server.close(demo)
            took = time.monotonic() - began
        assert took < 2.5 and not demo.server.thread.is_alive()
    finally:
        log.setLevel(level)
        demo.close(verbose=False)


@pytest.mark.parametrize(("flag", "value"), [("--port", "99999"), ("--port", "-1"), ("--host", "no.such.host.invalid")])
def test_an_address_that_cannot_be_is_one_line(flag, value):
    done = subprocess.run([sys.executable, "app.py", flag, value], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and value in done.stderr


def test_an_interrupt_while_it_imports_ends_it_without_a_traceback():
    process = subprocess.Popen([sys.executable, "app.py", "--port", str(free_port())], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT and said.count("\n") <= 1 and "Traceback" not in said


def test_a_port_that_is_no_number_is_one_line():
    done = subprocess.run([sys.executable, "app.py"], capture_output=True, text=True, cwd=ROOT, timeout=120,
                          env={"PATH": "/usr/bin", "GRADIO_SERVER_PORT": "http"})  # fmt: skip
    assert done.returncode == 1 and done.stderr.strip() == "GRADIO_SERVER_PORT is 'http'; it needs a number"


def test_gradio_writes_no_editor_stubs_at_a_start():
    """They cost a quarter of the start; the step is found by name, so this tells when Gradio renames it."""
    code = "import playground.ui; from gradio import component_meta as m; print(m.create_or_modify_pyi.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "playground.ui.no_stubs", done.stderr
