"""The limits of nodes: the writes that they may make, and the pods that they can take."""
