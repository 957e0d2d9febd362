"""Commands that measure."""

from __future__ import annotations

from harness.cli.app import profile
from harness.cli.flags import Given, Json, quiet, takes
from harness.config.tool_configs import SamplesConfig, SweepConfig


@profile.command("sweep")
@takes(SweepConfig.model_fields)
def profile_sweep(given: Given, json: Json = None) -> None:
    """Time the grid of methods x removed 0.25, 0.5, 0.75, 0.875: shared against one variant at a time."""
    from harness import files

    files.check_file(json)
    config = SweepConfig(**given)
    quiet()
    from harness.measure import timing, timing_tables

    result = timing.sweep(config)
    timing_tables.print_sweep(result)
    if json:
        files.write(result.model_dump(), json)


@profile.command("samples")
@takes(SamplesConfig.model_fields)
def profile_samples(given: Given, json: Json = None) -> None:
    """Time the shared grid on real samples; scripts/kvpress_sweep.py runs kvpress on the same ones."""
    from harness import files

    files.check_file(json)
    config = SamplesConfig(**given)
    quiet()
    from harness.measure import timing, timing_tables

    result = timing.on_samples(config)
    timing_tables.print_samples_timing(result)
    if json:
        files.write(result.model_dump(), json)
