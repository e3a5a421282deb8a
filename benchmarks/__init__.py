"""Programs that each answer one question; README.md lists them."""
