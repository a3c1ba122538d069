"""Network policies: which connections each pod may have, as rules of the node."""
