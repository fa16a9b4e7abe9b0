"""The page's HTML document: Gradio's own, with our head in it, and with what the browser will need named at its top.

Gradio would bring a head from its config, by script, after it has started; so fonts and styles would come late.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from playground.ui import live, theme
from playground.ui.assets import Assets

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

BASE = re.compile(rb"<base [^>]*>")
END = b"</head>"
# What Gradio's loader makes the address of its theme from; it waits for the sheet unless it finds a link to it.
THEME = re.compile(rb'"theme_hash":"(\w+)"'), re.compile(rb'"root":"([^"\\]+)"\};</script>')
CONFIG = re.compile(rb"(?<=<script>window\.gradio_config = )\{.*?\}(?=;</script>)", re.DOTALL)
# What a component's values look like to programs; the browser's code never reads it.
FOR_PROGRAMS = ("api_info", "api_info_as_input", "api_info_as_output", "example_inputs")
WHOLE = b"view=", b"deep_link="  # what asks for a page with more in it, such as Gradio's list of endpoints
NAMING = b"host", b"x-forwarded-host", b"x-forwarded-proto", b"x-gradio-server"
MOST_KEPT = 8  # documents; one for each name that the page is reached by


@dataclass(frozen=True)
class Page:
    """A document that is ready to be sent."""

    html: bytes
    small: bytes

    def response(self, accepts: bytes) -> Response:
        vary = {"vary": "Accept-Encoding"}
        if b"gzip" in accepts:
            return Response(self.small, 200, {"content-encoding": "gzip", **vary}, "text/html")
        return Response(self.html, 200, vary, "text/html")


class Document:
    """ASGI middleware: `first` goes to the top of the document's head and `last` to its end, where it outweighs.

    The document is the same for every visitor, as nobody logs in: it is made and compressed once for each address.
    """

    def __init__(self, app: Any, first: str, last: str):
        self.app, self.first, self.last = app, first.encode(), last.encode()
        self._kept: OrderedDict[Any, Page] = OrderedDict()

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        page = scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) in ("/", "")
        if not page or scope["method"] != "GET" or any(word in scope["query_string"] for word in WHOLE):
            await self.app(scope, receive, send)
            return
        key = _address(scope)
        if key not in self._kept:
            told = await self._told(scope, receive)
            if told[0].get("status") != 200:  # no page: as it is, with its headers
                for message in told:
                    await send(message)
                return
            html = self.complete(b"".join(message.get("body", b"") for message in told))
            self._kept[key] = Page(html, gzip.compress(html, 6))
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        accepts = dict(scope["headers"]).get(b"accept-encoding", b"")
        await self._kept[key].response(accepts)(scope, receive, send)

    async def _told(self, scope: Any, receive: Any) -> list[Message]:
        told: list[Message] = []

        async def taken(message: Message) -> None:
            told.append(message)

        await self.app(scope, receive, taken)
        return told

    def complete(self, html: bytes) -> bytes:
        """The document with both pieces in it; what is no such document stays as it is."""
        base = BASE.search(html)
        if not base or END not in html:
            return html
        top, rest = html[: base.end()], html[base.end() :]
        hashed, root = (pattern.search(html) for pattern in THEME)
        link = b'<link rel="stylesheet" href="%b/theme.css?v=%b">' % (root[1], hashed[1]) if hashed and root else b""
        rest = CONFIG.sub(lambda found: _shortened(found[0]), rest, count=1)
        return top + self.first + rest.replace(END, link + self.last + END, 1)


def _address(scope: Any) -> Any:
    """What Gradio makes a document's own addresses from: the name it was asked for by, and what a proxy says of it."""
    return scope.get("scheme"), scope.get("root_path"), tuple(sorted(h for h in scope["headers"] if h[0] in NAMING))


def _shortened(config: bytes) -> bytes:
    """Gradio's description of the page without what only programs call and read: a fifth of its work for a browser."""
    told = json.loads(config)
    called = {d["id"] for d in told["dependencies"] if not d["targets"] and d["api_visibility"] == "public"}
    own = [d for d in told["dependencies"] if d["id"] not in called]
    used = {part for d in own for part in (*d["inputs"], *d["outputs"])}
    of_calls = {p for d in told["dependencies"] if d["id"] in called for p in (*d["inputs"], *d["outputs"])} - used
    kept = [c for c in told["components"] if c["id"] not in of_calls]
    told["dependencies"] = own
    told["components"] = [{k: v for k, v in c.items() if k not in FOR_PROGRAMS} for c in kept]
    for page in (told, *told["page"].values()):
        page["layout"] = _without(page["layout"], of_calls)
    for page in told["page"].values():
        page["components"] = [i for i in page["components"] if i not in of_calls]
        page["dependencies"] = [i for i in page["dependencies"] if i not in called]
    return _as_script(told)


def _without(node: dict[str, Any], gone: set[int]) -> dict[str, Any]:
    children = node.get("children")
    return node if children is None else {**node, "children": list(_left(children, gone))}


def _left(nodes: Sequence[dict[str, Any]], gone: set[int]) -> Iterator[dict[str, Any]]:
    return (_without(node, gone) for node in nodes if node["id"] not in gone)


def _as_script(data: Any) -> bytes:
    """JSON that may stand in a script of a document."""
    text = json.dumps(data, separators=(",", ":"))
    return re.sub("[<>&']", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def first(dims: Mapping[str, Sequence[str]], assets: Assets) -> str:
    """Files to be fetched at once, and the page's script, which reads the address before Gradio does."""
    face = '<link rel="preload" href="{}" as="font" type="font/woff2" crossorigin>'
    fonts = "".join(map(face.format, _fonts(assets)))
    scripts = "".join(f'<link rel="modulepreload" crossorigin href="./assets/{name}">' for name in assets.scripts)
    data = _as_script({name: list(sizes) for name, sizes in dims.items()}).decode()
    return f"{fonts}{scripts}<script>window.tpDims = {data};\n{live.script('page.js')}</script>"


def last(assets: Assets) -> str:
    """Gradio's style sheets in one, and ours.

    The loader waits for each sheet that it finds no link for. So each has one, of a type that no browser loads.
    """
    here = "".join(
        f'<link rel="stylesheet" type="text/plain" crossorigin href="./assets/{name}">' for name in assets.styles
    )
    gradios = f'<link rel="stylesheet" href="{assets.url("gradio.css")}">{here}' if here else ""
    next_, mono = _fonts(assets)
    ours = theme.css({"Hyperlegible": next_, "Hyperlegible Mono": mono})
    ours += "".join(path.read_text() for path in sorted(live.ASSETS.glob("*.css"), reverse=True))
    return f"{gradios}<style>{ours}</style>"


def _fonts(assets: Assets) -> tuple[str, str]:
    return assets.url("next.woff2"), assets.url("mono.woff2")
