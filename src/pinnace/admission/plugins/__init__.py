"""Kubernetes' built-in admission plug-ins, one file each."""
