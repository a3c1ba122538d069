"""Searches for bugs of timing: runs a scenario with one disturbance after another, and compares the end states."""
