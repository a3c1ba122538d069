"""The commands for authors of operators, schedulers and plug-ins."""
