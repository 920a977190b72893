"""Measurements. Each prints ratios between things that ran side by side, and writes what it saw as JSON."""
