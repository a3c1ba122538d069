"""The shape of values: validate, default, prune and merge plain JSON by a schema; CEL; configuration files."""
