"""Calls of webhooks, for admission and for the conversion of custom kinds."""
