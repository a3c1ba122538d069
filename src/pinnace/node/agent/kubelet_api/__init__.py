"""Kubelet's API of a node: logs, exec, port-forward, statistics and documents."""
