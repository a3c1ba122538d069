"""Operators: handlers, their declarations, webhooks, and the process that runs them."""
