"""Engines on tokenpipe: one in a file, one with a real model, two that nobody here wrote."""
