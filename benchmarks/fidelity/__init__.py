"""Fidelity: teacher-forced comparison of a pruned cache with the full one."""
