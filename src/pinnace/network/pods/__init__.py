"""The network of the pods of one node: a bridge in a network namespace without a default route."""
