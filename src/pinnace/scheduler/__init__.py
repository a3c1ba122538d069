"""Chooses a node for each pod: filter, score, bind."""
