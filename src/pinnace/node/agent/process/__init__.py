"""The watch dog of an agent's process, and the parent that starts the agent again."""
