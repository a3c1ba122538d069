"""The metrics APIs that this process serves: usage of nodes and pods, custom and external metrics."""
