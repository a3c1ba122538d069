"""Nodes, and the pods that outlive them."""
