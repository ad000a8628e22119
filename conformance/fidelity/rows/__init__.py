"""The rows of the fidelity table, one module a family of behaviours."""
