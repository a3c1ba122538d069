"""Hosts the plug-ins of a node over kubelet's sockets: registration, devices and the resources of pods."""
