# %% [markdown]
# # What a delay costs
#
# How much longer does a training step take for each millisecond between two machines?
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
# Both times are in their 95 % intervals, and so the cost in this one, with at least 90 %.
# `nan`: too few repetitions.

# %%
near, far = cells.iloc[0], cells.iloc[-1]
delay_s = far["one_way_delay_s"] - near["one_way_delay_s"]
cost = (far["step_time_s"] - near["step_time_s"]) / delay_s
low = (far["step_time_low_s"] - near["step_time_high_s"]) / delay_s
high = (far["step_time_high_s"] - near["step_time_low_s"]) / delay_s
print(f"Each ms of delay costs {cost:.1f} ms a step (90 %: {low:.1f} to {high:.1f}), or more")
