"""Forks, faults, clock and history of a test's cluster over HTTP, for tests in any language."""
