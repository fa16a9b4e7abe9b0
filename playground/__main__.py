"""`python -m playground VERB`: see playground.cli."""

import signal
import sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until `main` can answer it

from playground.cli import main  # noqa: E402 - after the line above

sys.exit(main())
