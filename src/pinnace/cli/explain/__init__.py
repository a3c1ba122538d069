"""The commands that explain or predict a decision of the cluster."""
