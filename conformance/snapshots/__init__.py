"""What an adapter gave once, kept in small files beside it, and whether it still gives the same."""
