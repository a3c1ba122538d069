"""The Common Expression Language: parse, check, estimate cost, compile and evaluate."""
