"""Runs the pods that are bound to nodes. Only simulated nodes exist so far: they start no containers."""
