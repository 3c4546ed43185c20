"""Simulated agents, hundreds in a process: real messages, no machine behind them."""
