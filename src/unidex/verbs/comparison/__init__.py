"""Several recipes on one data set: what is asked, each run in a process of its own, what was measured."""
