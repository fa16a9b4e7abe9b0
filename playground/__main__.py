"""`python -m playground VERB`: see playground.cli."""

import sys

from playground.cli import main

sys.exit(main())
