"""Engines on tokenpipe: one in a single file, one with a real model, two of other projects."""
