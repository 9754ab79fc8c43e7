"""Files and folders that are written whole or not at all: locks, atomic replacement, mapped tables."""
