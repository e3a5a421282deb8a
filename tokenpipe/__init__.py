"""Carry sampled tokens from the processes that compute them to those that serve them."""
