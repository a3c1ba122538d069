"""The objects that every cluster has from its start."""
