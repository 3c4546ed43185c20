"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines that test stand still for seconds: an example that takes long says nothing of the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
