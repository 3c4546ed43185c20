# %% [markdown]
# # What a delay costs
#
# How much does each millisecond between two machines add to a training step?
#
# `tcp_proxy` needs no root, but TCP does not notice its delay: a real link costs more. Where agents
# have netem, and in `farm lab`, leave `emulator` out.

# %%
import benchfarm

farm = benchfarm.connect()
sweep = farm.submit(
    {
        "name": "what does a delay cost?",
        "repetitions": 3,
        "case": [
            {
                "model": "small_cnn",
                "dataset": "digits",
                "strategy": "mwms_ring",
                "world_size": 2,
                "global_batch_size": 128,
                "one_way_delay_ms": [0, 10],
                "emulator": "tcp_proxy",
                "steps": 20,
            }
        ],
    }
).wait(progress=True)
cells = sweep.cells()
cells[["one_way_delay_s", "step_time_s", "step_time_low_s", "step_time_high_s", "repetition_count"]]

# %%
axes = sweep.plot(along="one_way_delay_ms")
axes.figure.savefig("delay.pdf")

# %% [markdown]
# Two 95 % intervals give one of at least 90 % for the cost. `nan`: too few repetitions.

# %%
near, far = cells.iloc[0], cells.iloc[-1]
delay_s = far["one_way_delay_s"] - near["one_way_delay_s"]
cost = (far["step_time_s"] - near["step_time_s"]) / delay_s
low = (far["step_time_low_s"] - near["step_time_high_s"]) / delay_s
high = (far["step_time_high_s"] - near["step_time_low_s"]) / delay_s
print(f"Each ms of delay costs {cost:.1f} ms a step (90 %: {low:.1f} to {high:.1f}), or more")
