"""Exec, attach, logs, port-forward and proxy, over SPDY and WebSocket."""
