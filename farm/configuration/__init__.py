"""What is measured: axes, sweep files, the jobs that they become."""
