"""Pods: defaults, validation, updates, columns."""
