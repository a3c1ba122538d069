"""The metrics of a node under kubelet's names."""
