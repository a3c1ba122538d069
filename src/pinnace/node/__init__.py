"""Runs the pods that are bound to nodes; today simulated nodes, without containers."""
