"""The loop every controller runs: watch, queue, reconcile, apply."""
