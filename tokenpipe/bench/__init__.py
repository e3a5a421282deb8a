"""Run the pipeline with real processes, and prove that each token arrives once and at its owner.

This folder is no part of the pipeline. It uses the public interfaces, as an engine does.
"""
