"""The flags of commands: those that several share, and groups of which a command receives the settings."""
