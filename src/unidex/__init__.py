"""unidex matches a text to the right few of thousands to hundreds of millions of labels."""

__version__ = "0.1.0"
