"""Tests of reading users' data."""
