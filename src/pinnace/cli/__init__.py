"""The pinnace command."""

import time

STARTED = time.monotonic()
"""When the command began: this is read before all that takes time."""
