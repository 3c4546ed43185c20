"""What a sweep may vary: axes, sweep files, and the jobs that they become."""
