"""The page's own files under addresses that carry their hash, so that a browser may keep them for ever."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass, field
from pathlib import Path

from playground.ui.live import ASSETS, PLOTLY_JS

FOLDER = "/playground-assets/"
FILES = (ASSETS / "next.woff2", ASSETS / "mono.woff2", PLOTLY_JS)


@dataclass
class Asset:
    """One file: its type and bytes, and what it shrinks to where that pays."""

    path: Path
    kind: str
    data: bytes
    _small: bytes | None = None

    @property
    def compresses(self) -> bool:
        return self.kind.startswith(("text/", "application/javascript"))

    def small(self) -> bytes:
        """gzip, made once, when a browser first asks."""
        if self._small is None:
            self._small = gzip.compress(self.data, 6)
        return self._small


@dataclass
class Assets:
    """root: the prefix behind a reverse proxy, as settings.root_path has it."""

    root: str = ""
    by_url: dict[str, Asset] = field(default_factory=dict)
    _urls: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in FILES:
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()[:16]
            url = f"{FOLDER}{path.stem}.{digest}{path.suffix}"
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            self.by_url[url] = Asset(path, kind, data)
            self._urls[path.name] = url

    def url(self, name: str) -> str:
        """Where a browser finds this file."""
        return self.root.rstrip("/") + self._urls[name]
