"""The status of pods and of the Node, and the node's lease."""
