"""Drive the pipeline with real processes and prove that every token arrived once, at its owner.

Nothing here is part of the pipeline: it uses the public faces, as an engine would.
"""
