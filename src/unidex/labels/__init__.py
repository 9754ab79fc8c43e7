"""Labels as parameters: row tables, heads and classifiers."""
