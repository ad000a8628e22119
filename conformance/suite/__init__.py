"""The test module that pytest collects for `--adapter`."""
