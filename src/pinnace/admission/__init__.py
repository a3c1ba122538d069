"""Changes or refuses a write before it is stored."""
