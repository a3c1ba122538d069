"""The watch cache: stored bytes in memory, fan-out to watchers, representations, served versions."""
