"""Continuous batching of the transformers library, its tokens carried by tokenpipe."""
