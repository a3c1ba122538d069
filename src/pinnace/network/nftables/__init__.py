"""Speaks to the kernel's packet filter: tables, chains, maps and rules, in transactions."""
