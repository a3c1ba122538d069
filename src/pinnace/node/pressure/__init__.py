"""Eviction of pods when the node runs out of memory, disk or process ids."""
