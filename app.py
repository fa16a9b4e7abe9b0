"""Serve the playground: settings, engine, page. `python app.py --help` tells the flags."""

import argparse
import dataclasses
import sys

from playground.settings import Settings
from playground.ui.port import need_free


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

    from playground.engine.engine import Engine  # after the flags, so that --help and a taken port answer at once
    from playground.ui.server import launch

    launch(Engine(settings), settings)


if __name__ == "__main__":
    main()
