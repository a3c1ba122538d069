"""Custom resources by their schema: prune and default objects; check that schemas are structural and compatible."""
