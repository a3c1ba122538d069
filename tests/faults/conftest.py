"""The fixtures of the plug-in, whether or not it is installed."""

from pinnace.testing.plugin import cluster, kubeconfig

__all__ = ["cluster", "kubeconfig"]
