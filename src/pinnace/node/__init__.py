"""Runs the pods bound to one machine, through a container runtime."""
