"""Tests of captured graphs."""
