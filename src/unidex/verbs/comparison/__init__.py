"""Several recipes on one data set: the plan, one process per run, the measurements, the result."""
