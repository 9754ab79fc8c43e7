"""Encoders: texts become sparse features or tokens, and those become vectors."""
