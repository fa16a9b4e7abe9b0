"""The files that the page needs, in memory: our own under addresses that carry their hash, and those of Gradio's build.

A browser may keep either for ever. Gradio's server would read and compress its own anew for each visit.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from playground.ui import plotly_js
from playground.ui.frontend import BUILD
from playground.ui.live import ASSETS

FOLDER = "/playground-assets/"
FONTS = (ASSETS / "next.woff2", ASSETS / "mono.woff2")


@dataclass
class Asset:
    """One file: its type and bytes, and what it shrinks to where that pays."""

    kind: str
    data: bytes
    _small: bytes | None = None

    @property
    def compresses(self) -> bool:
        return self.kind.startswith(("text/", "application/javascript"))

    def small(self) -> bytes:
        """gzip, made once."""
        if self._small is None:
            self._small = gzip.compress(self.data, 6)
        return self._small


@dataclass
class Assets:
    """root: the prefix behind a reverse proxy, as settings.root_path has it. build: names of files of Gradio's."""

    root: str = ""
    build: Sequence[str] = ()
    by_url: dict[str, Asset] = field(default_factory=dict)
    _urls: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in FONTS:
            self._keep(path.name, path.read_bytes())
        self._keep(plotly_js.FILE.name, plotly_js.code())
        for name in self.build:
            self.by_url[f"/assets/{name}"] = Asset(_kind(name), (BUILD / "assets" / name).read_bytes())
        if self.styles:
            self._keep("gradio.css", b"\n".join(self.by_url[f"/assets/{name}"].data for name in self.styles))

    def _keep(self, name: str, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()[:16]
        path = Path(name)
        url = f"{FOLDER}{path.stem}.{digest}{path.suffix}"
        self.by_url[url] = Asset(_kind(name), data)
        self._urls[name] = url

    @property
    def scripts(self) -> list[str]:
        return [name for name in self.build if name.endswith(".js")]

    @property
    def styles(self) -> list[str]:
        """Those of the components: what stands beside the entry is linked by Gradio's document."""
        own = [name for name in self.build if name.endswith(".css")]
        return [name for name in own if f"./assets/{name}" not in (BUILD / "index.html").read_text()]

    def pack(self) -> None:
        """Compress what is not compressed yet, which the first visit would wait for."""
        for asset in self.by_url.values():
            if asset.compresses:
                asset.small()

    def url(self, name: str) -> str:
        """Where a browser finds this file."""
        return self.root.rstrip("/") + self._urls[name]


def _kind(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
