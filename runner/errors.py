"""What an author or operator can mend: each message says what was expected, what was found and what to do."""


class AdapterError(ValueError):
    """A declaration, bucket list, call or output that contradicts what the adapter declares."""


class ConfigError(ValueError):
    """A configuration value outside its allowed set."""
