"""The resources of a node and its pods: limits in the kernel's units, admission, and in-place resize."""
