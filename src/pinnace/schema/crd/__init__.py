"""Rules for the schemas of CustomResourceDefinitions: structural, compatible, with valid defaults."""
