"""Pictures and the numbers behind them. Matplotlib is imported by the drawing modules only."""
