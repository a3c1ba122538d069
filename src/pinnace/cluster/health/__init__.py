"""Whether the cluster works: the supervisor of its parts, the checks, the stall watch and the memory."""
