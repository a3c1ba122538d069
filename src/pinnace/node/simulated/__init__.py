"""Simulated nodes: they renew their leases and lead their pods through stages, without containers."""
