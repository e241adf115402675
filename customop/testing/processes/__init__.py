"""Child processes that run what may crash, and their limits."""
