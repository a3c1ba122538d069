"""The runtime that needs neither an engine nor root: namespaces, and a supervisor process for each pod."""
