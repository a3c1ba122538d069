"""The fixtures of the plug-in, whether or not it is installed; the cluster is reached both ways."""

from tests.testing.both_ways import cluster

from pinnace.testing.plugin import kubeconfig

__all__ = ["cluster", "kubeconfig"]
