"""Programs with one question each; README.md says which."""
