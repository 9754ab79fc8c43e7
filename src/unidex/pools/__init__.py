"""Which texts make a batch, and which labels they are scored against."""
