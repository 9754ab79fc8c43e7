"""The command line: one file a verb. It parses, calls the library and formats; it computes nothing."""
