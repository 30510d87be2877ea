"""Measurements: what a process or a model is worth, with its error."""
