"""The start of a process of a container, between its fork from the supervisor and its exec."""
