"""Data sets: what they hold, how they are read, split and written."""
