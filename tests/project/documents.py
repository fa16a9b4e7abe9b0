"""The project's documents as data: their inline code, links, and fenced blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.project.source import ROOT, files

FENCE = re.compile(r"^```(?P<language>[a-z]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document, e.g. language "bash"."""

    document: str
    language: str
    body: str


def documents() -> list[str]:
    return [name for name in files() if name.endswith(".md")]


def text(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> list[Block]:
    return [Block(document, m["language"], m["body"]) for m in FENCE.finditer(text(document))]


def prose(document: str) -> str:
    """A document without its fenced blocks."""
    return FENCE.sub("", text(document))


def code_spans(document: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(document))


def links(document: str) -> list[str]:
    """Targets of links and pictures, those of HTML's picture elements included."""
    plain = re.sub(r"`[^`\n]+`", "", prose(document))
    return re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r"""(?:src|srcset|href)=["']([^"']+)["']""", plain)


def commands(document: str) -> list[str]:
    """The command lines in the bash blocks of a document, comments cut."""
    lines = [line for block in blocks(document) if block.language == "bash" for line in block.body.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]
