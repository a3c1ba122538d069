"""Kubernetes' built-in admission plug-ins, a module for each idea."""
