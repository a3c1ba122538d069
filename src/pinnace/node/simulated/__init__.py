"""Nodes without machines: they keep their leases and take their pods through life by stages."""
