"""Several questions on each context."""
