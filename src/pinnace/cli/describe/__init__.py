"""`pinnace describe`: one file per family of kinds."""
