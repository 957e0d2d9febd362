"""Checks of run folders that someone wants to submit. What they read was written by strangers: none of it is trusted,
and none of it may end a check with a traceback. Neither a model nor torch is loaded."""
