"""Tables and pictures from numbers that others computed."""
