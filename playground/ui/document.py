"""The page's HTML document: Gradio's own, with our head in it, and with what the browser will need named at its top.

Gradio would bring a head from its config, by script, after it has started; so fonts and styles would come late.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from starlette.middleware.gzip import GZipMiddleware

from playground.ui import live, theme
from playground.ui.assets import Assets

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

BASE = re.compile(rb"<base [^>]*>")
END = b"</head>"
# What Gradio's loader makes the address of its theme from; it waits for the sheet unless it finds a link to it.
THEME = re.compile(rb'"theme_hash":"(\w+)"'), re.compile(rb'"root":"([^"\\]+)"\};</script>')


class Document:
    """ASGI middleware: `first` goes to the top of the document's head and `last` to its end, where it outweighs.

    The document is sent compressed, which Gradio leaves out: ten times smaller.
    """

    def __init__(self, app: Any, first: str, last: str):
        self.app, self.first, self.last = app, first.encode(), last.encode()
        self.packed = GZipMiddleware(self._page, compresslevel=5)

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        page = scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) in ("/", "")
        await (self.packed if page else self.app)(scope, receive, send)

    async def _page(self, scope: Any, receive: Any, send: Send) -> None:
        started: list[Message] = []
        body = bytearray()

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body"):
                html = self.complete(bytes(body))
                kept = [h for h in started[0].get("headers", []) if h[0].lower() != b"content-length"]
                length = (b"content-length", str(len(html)).encode())
                await send({**started[0], "headers": [*kept, length]})
                await send({"type": "http.response.body", "body": html})

        await self.app(scope, receive, completed)

    def complete(self, html: bytes) -> bytes:
        """The document with both pieces in it; what is no such document stays as it is."""
        base = BASE.search(html)
        if not base or END not in html:
            return html
        top, rest = html[: base.end()], html[base.end() :]
        hashed, root = (pattern.search(html) for pattern in THEME)
        link = b'<link rel="stylesheet" href="%b/theme.css?v=%b">' % (root[1], hashed[1]) if hashed and root else b""
        return top + self.first + rest.replace(END, link + self.last + END, 1)


def first(dims: Mapping[str, Sequence[str]], assets: Assets) -> str:
    """Files to be fetched at once, and the page's script, which reads the address before Gradio does."""
    face = '<link rel="preload" href="{}" as="font" type="font/woff2" crossorigin>'
    fonts = "".join(map(face.format, _fonts(assets)))
    scripts = "".join(f'<link rel="modulepreload" crossorigin href="./assets/{name}">' for name in assets.scripts)
    data = json.dumps(dims).replace("<", "\\u003c")
    return f"{fonts}{scripts}<script>window.tpDims = {data};\n{live.script('page.js')}</script>"


def last(assets: Assets) -> str:
    """Gradio's style sheets in one, and ours.

    The loader waits for each sheet that it finds no link for. So each has one, which `disabled` keeps from loading.
    """
    here = "".join(f'<link rel="stylesheet" disabled crossorigin href="./assets/{name}">' for name in assets.styles)
    gradios = f'<link rel="stylesheet" href="{assets.url("gradio.css")}">{here}' if here else ""
    next_, mono = _fonts(assets)
    ours = theme.css({"Hyperlegible": next_, "Hyperlegible Mono": mono})
    ours += "".join(path.read_text() for path in sorted(live.ASSETS.glob("*.css"), reverse=True))
    return f"{gradios}<style>{ours}</style>"


def _fonts(assets: Assets) -> tuple[str, str]:
    return assets.url("next.woff2"), assets.url("mono.woff2")
