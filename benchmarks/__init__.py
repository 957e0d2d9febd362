"""Benchmarks: samples to run and the scoring of their answers, by name in :mod:`benchmarks.registry`. No model code."""
