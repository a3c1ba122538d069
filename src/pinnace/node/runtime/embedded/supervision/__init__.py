"""The processes that outlive the agent: the fork server of a node, and the supervisor of each pod."""
