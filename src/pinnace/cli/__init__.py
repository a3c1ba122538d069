"""The pinnace command."""
