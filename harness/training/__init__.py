"""Training of a KVzap surrogate: ``kvprune train-kvzap``; :func:`harness.training.train.train` is the way in."""
