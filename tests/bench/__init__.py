"""Tests of the benchmark suite: its cases, peers, timer and report. No test measures a time."""
