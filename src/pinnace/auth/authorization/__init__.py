"""Authorizers: RBAC, nodes, escalation checks and explanations."""
