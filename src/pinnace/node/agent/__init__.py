"""The node agent: runs the pods that are bound to this node, as a kubelet does."""
