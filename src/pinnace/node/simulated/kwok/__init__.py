"""Reads the Stage files of KWOK (kwok.x-k8s.io/v1alpha1): selectors, delays, and the templates of patches."""
