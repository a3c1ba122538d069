"""kubectl plug-ins written in Python."""
