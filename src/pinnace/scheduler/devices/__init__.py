"""Devices for dynamic resource allocation: which a node offers, and which of them a pod's claims get."""
