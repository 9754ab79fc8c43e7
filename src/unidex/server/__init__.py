"""The service: one model over HTTP, with a page. Nothing here is imported unless it is asked for."""
