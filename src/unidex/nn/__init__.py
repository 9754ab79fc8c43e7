"""Parameters: the network, row tables, heads, classifier parts, label tree and how they are initialised."""
