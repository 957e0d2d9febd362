"""Generators of RULER's tasks, one module per family; each makes the plan of a sample, which ``plan.Filler`` fills."""
