"""Structured merge and strategic merge by a schema, and sets of fields."""
