# %% [markdown]
# # From a sweep to a figure for a paper
#
# From which batch size on does a second machine pay?

# %%
import matplotlib.pyplot as plt
import pandas as pd

import benchfarm

farm = benchfarm.connect()
common = {"model": "small_cnn", "dataset": "digits", "global_batch_size": [64, 256], "steps": 30}
sweep = farm.submit(
    {
        "name": "does a second machine pay?",
        "repetitions": 5,
        "case": [
            {**common, "strategy": "single", "world_size": 1},
            {**common, "strategy": "mwms_ring", "world_size": 2},
        ],
    }
).wait(progress=True)

# %% [markdown]
# A row for each configuration: the median with its 95 % interval. `NaN`: too few repetitions.

# %%
cells = sweep.cells()
table = cells[
    ["global_batch_size", "world_size", "step_time_s", "step_time_low_s", "step_time_high_s"]
]
table.to_csv("table.csv", index=False)
table

# %% [markdown]
# Crosses are disturbed repetitions. They count only where there are no others.

# %%
figure, axes = plt.subplots(figsize=(4.5, 3), layout="constrained")
sweep.plot(axes, along="global_batch_size")
runs = sweep.measurements()
disturbed = runs[runs["is_disturbed"]]
axes.plot(disturbed["global_batch_size"], disturbed["step_time_s"], "x", color="grey", zorder=0)
highest_s = max(axes.get_ylim()[1], 1.05 * runs["step_time_s"].max())
axes.set(title="", ylabel="Step time, 95 % interval", ylim=(0, highest_s))
for form in ("pdf", "svg"):
    figure.savefig(f"step_time.{form}")

# %% [markdown]
# Two 95 % intervals give one of at least 90 % for the ratio.

# %%
for batch_size, pair in cells.groupby("global_batch_size"):
    one, two = (pair[pair["world_size"] == world_size].iloc[0] for world_size in (1, 2))
    low = one["step_time_low_s"] / two["step_time_high_s"]
    high = one["step_time_high_s"] / two["step_time_low_s"]
    verdict = "it pays" if low > 1 else "it does not pay" if high < 1 else "not known"
    interval = "too few repetitions" if pd.isna(low) else f"90 %: {low:.2f} to {high:.2f}"
    print(
        f"Batch size {batch_size}: {one['step_time_s'] / two['step_time_s']:.2f} times as fast "
        f"({interval}): {verdict}"
    )
