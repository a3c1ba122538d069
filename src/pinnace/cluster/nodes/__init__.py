"""How the server reaches nodes and pods, and the nodes that it simulates."""
