"""The cost of CEL expressions: estimated before they run, counted while they run."""
