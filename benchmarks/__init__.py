"""What the farm itself costs: one figure a module, see docs/performance.md."""

import os

# Images of containers ask for this, and whoever has it in a shell: every process of every farm that
# is measured would compile the farm anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
