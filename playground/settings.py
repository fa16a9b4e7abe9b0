"""Every environment variable and flag, read once into one frozen object.

Workers get theirs from the parent. Beside this only playground.native reads some of its own (docs/native.md), since
it knows nothing of the page.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Settings:
    """host, port    where the page is served (GRADIO_SERVER_NAME, GRADIO_SERVER_PORT)
    root_path       prefix behind a reverse proxy (GRADIO_ROOT_PATH)
    cache           tuned configs, kernels compiled for the CPU, the default model (PLAYGROUND_CACHE)
    recordings      recorded GPU results that are shown on other hosts
    run_seconds     the most one run may take before its worker is replaced (PLAYGROUND_RUN_SECONDS)
    bench_seconds   likewise for a benchmark of all providers (PLAYGROUND_BENCH_SECONDS)
    model           who answers in the chat: a folder or a hub name; empty: SmolLM2-135M-Instruct (PLAYGROUND_MODEL)
    edit            kernels may be edited in the page: "loopback" or "off" (PLAYGROUND_EDIT)
    """

    host: str = "127.0.0.1"
    port: int = 7860
    root_path: str = ""
    cache: Path = Path.home() / ".cache" / "triton-playground"
    recordings: Path = ROOT / "assets" / "recordings"
    run_seconds: float = 60.0
    bench_seconds: float = 300.0
    edit: str = "loopback"
    model: str = ""

    @property
    def edits(self) -> bool:
        """Whether kernels may be edited, and so any Python be run: by whoever sits at this machine, and no one else.

        A prefix says that a proxy stands before the page, and lets others in.
        """
        return self.edit == "loopback" and is_loopback(self.host) and not self.root_path

    @staticmethod
    def from_env(env: Mapping[str, str] = os.environ) -> Settings:
        """Raises ValueError that names the variable, where a value cannot be used."""
        default = Settings()
        cache = env.get("PLAYGROUND_CACHE") or env.get("XDG_CACHE_HOME")
        return Settings(
            host=env.get("GRADIO_SERVER_NAME") or default.host,
            port=_number(env, "GRADIO_SERVER_PORT", default.port, int),
            root_path=env.get("GRADIO_ROOT_PATH", default.root_path),
            cache=_cache(env, cache, default.cache),
            recordings=Path(env.get("PLAYGROUND_RECORDINGS") or default.recordings),
            run_seconds=_seconds(env, "PLAYGROUND_RUN_SECONDS", default.run_seconds),
            bench_seconds=_seconds(env, "PLAYGROUND_BENCH_SECONDS", default.bench_seconds),
            edit=_one_of(env, "PLAYGROUND_EDIT", ("loopback", "off")),
            model=env.get("PLAYGROUND_MODEL", default.model),
        )


def is_loopback(name: str) -> bool:
    """Whether a host's name or address is this machine itself, whatever a name server says."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _one_of(env: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The first is the default."""
    text = env.get(name) or choices[0]
    if text not in choices:
        raise ValueError(f"{name} is {text!r}; it needs {' or '.join(choices)}")
    return text


def _cache(env: Mapping[str, str], given: str | None, default: Path) -> Path:
    if not given:
        return default
    return Path(given) if env.get("PLAYGROUND_CACHE") else Path(given) / "triton-playground"


def _number(env: Mapping[str, str], name: str, default: N, kind: Callable[[str], N]) -> N:
    text = env.get(name)
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it needs a number") from None


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    seconds = _number(env, name, default, float)
    if not seconds > 0:  # nor is NaN
        raise ValueError(f"{name} is {seconds:g}; it needs a number above 0")
    return seconds
