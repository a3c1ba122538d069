"""The pinnace command."""

import time

STARTED = time.monotonic()
"""When the command began: read before the slow imports."""
