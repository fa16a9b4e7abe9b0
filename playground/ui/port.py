"""Is the port free? Asked before anything heavy is imported, so that a taken port is told at once."""

from __future__ import annotations

import socket
import sys

from playground.settings import Settings


def need_free(settings: Settings) -> None:
    """Exits with one line where the page cannot be served at this address."""
    if not 0 <= settings.port <= 65535:
        sys.exit(f"Port {settings.port} cannot be: choose one from 1 to 65535 with --port.")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except socket.gaierror:
            sys.exit(f"No address is named {settings.host!r}: choose 127.0.0.1 or 0.0.0.0 with --host.")
        except OSError as error:
            at = f"Port {settings.port} on {settings.host}"
            sys.exit(f"{at} cannot be used ({error.strerror}): stop what holds it, or choose another with --port.")
