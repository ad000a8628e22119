"""Speed: how calls are timed, how two results are compared, and how medians go over commits."""
