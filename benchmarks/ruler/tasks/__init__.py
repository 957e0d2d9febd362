"""Generators of RULER's tasks, one module a family; each makes the plan of a sample, which ``plan.Filler`` fills."""
