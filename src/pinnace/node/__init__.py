"""Runs the pods that are bound to nodes: simulated ones, and containers through a runtime."""
