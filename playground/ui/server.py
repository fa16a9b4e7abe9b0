"""Serve the page: Gradio's server with unused routes closed, safe headers and files that browsers may keep.

Settings are those that were tried together: a queue that is not open from outside, one page process, no analytics,
nothing from another host.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
# Gradio sums up every event that ever ran after each event, for a monitor that is off here.
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(10**9)

import gradio as gr
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response

from kernels import all_kernels
from playground.settings import Settings, is_loopback
from playground.ui import document, frontend, live, page, theme, updates
from playground.ui.answer import Engine
from playground.ui.api import openai
from playground.ui.assets import FOLDER, Assets
from playground.ui.context import Context

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Whatever is not here answers 404: uploads, files, logins, recordings, monitoring, Gradio's editors.
OPEN = (
    "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json", "/assets/", "/static/", "/svelte/",
    "/gradio_api/queue/", "/gradio_api/run/", "/gradio_api/call/", "/gradio_api/info", "/gradio_api/heartbeat/",
    "/gradio_api/mcp", "/gradio_api/startup-events", "/gradio_api/reset", "/gradio_api/cancel", "/gradio_api/app_id",
    "/gradio_api/openapi.json", FOLDER, openai.PREFIX,
)  # fmt: skip
KEPT = ("/assets/", "/static/", "/svelte/", "/theme.css", FOLDER)
HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"same-origin"))
HARMLESS = {name.decode(): value.decode() for name, value in HEADERS}
REMEDY = "behind a proxy or under another name, start it with PLAYGROUND_EDIT=off."
GRACE_SECONDS = 0.4  # what an answer that is being sent may still take once the server is asked to end
FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")


class Harden:
    """ASGI middleware: closes routes, adds headers, serves the files in `assets` and `completions`, OpenAI's API.

    alone: only pages of this machine may ask, and by a name of this machine. Where kernels may be edited, whoever can
    ask can run Python; another site's page could, through a name of its own that it lets point here.
    """

    def __init__(self, app: Any, assets: Assets, completions: Any, alone: bool):
        self.app, self.assets, self.completions, self.alone = app, assets, completions, alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.alone and (stranger := _stranger(dict(scope["headers"]))):
            line = f"This page answers on this machine alone, and {stranger} is elsewhere: {REMEDY}"
            await PlainTextResponse(line, 403, HARMLESS)(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path not in ("/", "") and not path.startswith(OPEN):
            await PlainTextResponse("Not found", 404, HARMLESS)(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [FOR_EVER] if path.startswith(KEPT) and message["status"] == 200 else []
                message["headers"] = [*_without_cache(message.get("headers", []), kept), *HEADERS, *kept]
            await send(message)

        if path.startswith(FOLDER) or path in self.assets.by_url:
            await self._file(path, scope)(scope, receive, with_headers)
        elif path.startswith(openai.PREFIX):
            await self.completions(scope, receive, with_headers)
        else:
            await self.app(scope, receive, with_headers)

    def _file(self, path: str, scope: Scope) -> Response:
        asset = self.assets.by_url.get(path)
        if asset is None:
            return PlainTextResponse("Not found", 404)
        accepts = dict(scope["headers"]).get(b"accept-encoding", b"")
        if asset.compresses and b"gzip" in accepts:
            return Response(asset.small(), headers={"content-encoding": "gzip"}, media_type=asset.kind)
        return Response(asset.data, media_type=asset.kind)


def _stranger(headers: Mapping[bytes, bytes]) -> str:
    """The name in Host or Origin that is none of this machine's, or "". A program sends no Origin."""
    for given in (b"//" + headers.get(b"host", b""), headers.get(b"origin", b"//localhost")):
        text = given.decode("latin-1")
        try:
            name = urlsplit(text).hostname or ""
        except ValueError:  # brackets that do not close
            name = ""
        if not is_loopback(name):
            return repr(text.removeprefix("//")[:80])
    return ""


def _without_cache(headers: Any, kept: list[Any]) -> list[Any]:
    return [h for h in headers if not (kept and h[0].lower() == b"cache-control")]


def launch(engine: Engine, settings: Settings) -> None:
    """Serve until Ctrl-C or SIGTERM, then stop the workers and the page's streams."""
    demo = None
    with contextlib.suppress(KeyboardInterrupt):
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, _stop)
        demo = serve(engine, settings)
        while demo.is_running:
            time.sleep(0.1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends it at once
    engine.close()  # first, so that what a page waits for has ended and its stream can
    if demo:
        close(demo)
    gc.freeze()  # the interpreter's last collection would walk all of torch for seconds, to free what ends anyway


def close(demo: gr.Blocks) -> None:
    """Gradio's own end: it ends the heartbeat of each open page, and what is being sent then has a moment left."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what is cut short now is no error
    demo.server.config.timeout_graceful_shutdown = GRACE_SECONDS
    demo.close(verbose=False)


def _stop(signum: int, frame: Any) -> None:
    raise KeyboardInterrupt


def serve(engine: Engine, settings: Settings) -> gr.Blocks:
    """Start the server and return at once."""
    updates.install()
    own = Assets(settings.root_path)
    context = Context(engine, settings, own.url("plotly.min.js"))
    demo = page.build(context)
    assets = Assets(settings.root_path, frontend.files({block.get_block_name() for block in demo.blocks.values()}))
    harden = Middleware(Harden, assets=assets, completions=openai.app(context), alone=settings.edits)
    dims = {name: [d.name for d in spec.dims] for name, spec in all_kernels().items()}
    completed = Middleware(document.Document, first=document.first(dims, assets), last=document.last(assets))
    demo.queue(max_size=400, default_concurrency_limit=4, api_open=False)
    demo.launch(
        server_name=settings.host,
        server_port=settings.port,
        root_path=settings.root_path or None,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        ssr_mode=False,
        run_history=False,
        enable_monitoring=False,
        strict_cors=True,
        max_threads=256,
        max_file_size="1mb",
        allowed_paths=[],
        state_session_capacity=200,  # half a megabyte each
        mcp_server=True,
        footer_links=[],
        theme=theme.gradio_theme(),
        favicon_path=live.ASSETS / "favicon.svg",
        app_kwargs={"middleware": [harden, completed]},
    )
    threading.Thread(target=assets.pack, name="pack", daemon=True).start()
    context.warm()  # after the page answers: a worker's start takes a core for seconds
    print(f"Triton Playground serves on http://{settings.host}:{settings.port}{settings.root_path}", flush=True)
    return demo
