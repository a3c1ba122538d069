"""Container runtimes: the Protocol that the node agent uses, and its implementations."""
