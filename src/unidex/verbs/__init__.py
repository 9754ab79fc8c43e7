"""What the command line and the service call: one function per verb, plain values in and out."""
