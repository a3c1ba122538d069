"""The cluster as arrays over all nodes, changed by one event at a time.

`ClusterState` has one writer, the scheduler, and no snapshots: a node has a slot, each fact of a node is one element of
an array, and a binding changes the elements of one slot. Readers remember how far they have read the logs of nodes and
of pods, and compute the changed slots again.
"""
