"""What several tests need: problems, data sets, runs, a running service."""
