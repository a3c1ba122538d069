"""The plan of a container, made by the agent: its command, root file system, mounts and filter of system calls."""
