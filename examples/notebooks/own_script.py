# %% [markdown]
# # Scaling of a script of your own
#
# How much faster does this script train on two machines, with the same global batch?

# %%
from pathlib import Path

import matplotlib.pyplot as plt

import benchfarm

print(Path("train.py").read_text())

# %% [markdown]
# The farm sets what `torchrun` does, and ends it after 30 steps.

# %%
farm = benchfarm.connect()
sweep = farm.submit(
    {
        "name": "does train.py scale?",
        "repetitions": 3,
        "case": [
            {
                "script": "train.py",
                "launcher": "torch",
                "args": ["--batch-size", "{per_rank_batch_size}"],
                "world_size": [1, 2],
                "global_batch_size": 2048,
                "steps": 30,
            }
        ],
    }
).wait(progress=True)
cells = sweep.cells()
cells[["world_size", "step_time_s", "step_time_low_s", "step_time_high_s", "repetition_count"]]

# %% [markdown]
# Two 95 % intervals give one of at least 90 % for the ratio. `nan`: too few repetitions.

# %%
one, two = cells.set_index("world_size").loc[[1, 2]].to_dict("records")
speed_up = one["step_time_s"] / two["step_time_s"]
low = one["step_time_low_s"] / two["step_time_high_s"]
high = one["step_time_high_s"] / two["step_time_low_s"]
print(f"Speed-up {speed_up:.2f} (90 %: {low:.2f} to {high:.2f})")
print(f"Efficiency {speed_up / 2:.0%} (90 %: {low / 2:.0%} to {high / 2:.0%})")

# %%
figure, axes = plt.subplots(figsize=(4.5, 3), layout="constrained")
axes.plot([1, 2], [1, 2], "--", color="grey", label="linear")
axes.plot([1, 2], [1, speed_up], "o-", label="train.py")
axes.errorbar([2], [(low + high) / 2], [(high - low) / 2], fmt="none", capsize=3, color="C0")
axes.set(xlabel="Machines", ylabel="Speed-up, 90 % interval", xticks=[1, 2], ylim=(0, None))
axes.legend()
figure.savefig("speed_up.pdf")
