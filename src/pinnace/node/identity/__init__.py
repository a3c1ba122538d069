"""The credentials of a node: a client certificate that the cluster signs, and its renewal."""
