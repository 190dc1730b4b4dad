"""JOSIE (SIGMOD 2019): exact top-k overlap search by sets and posting lists, as published."""
