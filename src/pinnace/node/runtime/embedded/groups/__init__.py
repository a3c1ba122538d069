"""Control groups: limits, use, and the end of the processes in them."""
