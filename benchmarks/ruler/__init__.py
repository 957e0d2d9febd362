"""RULER, generated or as published rows."""
