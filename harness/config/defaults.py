"""Names that the command line needs before anything heavy is imported."""

DEFAULT_MODEL = "smollm2-135m"
