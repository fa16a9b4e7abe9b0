"""Serve the playground: settings, engine, page. `python app.py --help` tells the flags."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `launch` answers it: imports take seconds, and end at once

import argparse  # noqa: E402 - after the line above
import dataclasses  # noqa: E402
import sys  # noqa: E402

from playground.settings import Settings  # noqa: E402
from playground.ui.port import need_free  # noqa: E402


def main() -> None:
    try:
        settings = Settings.from_env()
    except ValueError as error:
        sys.exit(str(error))
    parser = argparse.ArgumentParser(description="Triton Playground, in the browser.")
    parser.add_argument("--host", default=settings.host, help=f"address to serve on (default {settings.host})")
    parser.add_argument("--port", type=int, default=settings.port, help=f"port (default {settings.port})")
    given = parser.parse_args()
    settings = dataclasses.replace(settings, host=given.host, port=given.port)

    need_free(settings)

    print("Triton Playground starts; the first time that takes up to half a minute", flush=True)

    from playground.engine.engine import Engine  # after the flags, so that --help and a taken port answer at once
    from playground.ui.server import launch

    launch(Engine(settings), settings)


if __name__ == "__main__":
    main()
