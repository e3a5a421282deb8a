"""Continuous batching of the transformers library. tokenpipe carries its tokens."""
