"""Get, list with continue tokens, and watch."""
