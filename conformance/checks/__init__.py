"""The checks, one family a module. Importing a module registers its checks with the catalogue."""
