"""What checks measure and provoke with: outer captures, failing captures, threads, poison, logs of graphs and memory.

Instruments know subjects and nothing of pytest; which of them proves which promise is said in the checks.
"""
