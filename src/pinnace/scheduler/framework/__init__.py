"""The moments of a scheduling cycle, and the plug-ins that take part in them.

A plug-in is a `Plugin` that overrides the methods of its moments (`plugin.py` lists them). Filter and Score get all
nodes at once: `filter(cycle, at)` returns one code per selected node, 0 where the pod fits, and `refusal(cycle,
code)` explains a code; `score(cycle, at)` returns one integer per selected node. `at` is ALL or an array of slots:
index the arrays of `cycle.state` with it. `depends` says which changes alter a result, so that `evaluation.py` computes
only the changed slots again. `one_node.py` reads one node from the
arrays.
"""
