"""The cluster of a test, reached both ways."""

from tests.testing.both_ways import cluster

__all__ = ["cluster"]
