"""What may be asked of a farm: written by `python -m tests.document_tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Required, TypedDict


class MeasurementQuery(TypedDict, total=False):
    """Which measurements.

    - `sweep`: of this sweep; leaves out imported ones
    - `origin`: of this origin: `farm`, or an imported study
    - `instance_type`: on VMs of this type
    - `fingerprint`: on hardware of this kind
    - `status`: `ok`, or how they failed, such as `out_of_memory`
    - `model`: with this value: name of a model
    - `dataset`: with this value: name of a data set
    - `strategy`: with this value: how the work is distributed
    - `world_size`: with this value: ranks that train; parameter servers are not counted
    - `global_batch_size`: with this value: examples in one step of the whole gang, at least one for
      each replica
    - `server_count`: with this value: parameter servers, for strategies that have them
    - `server_placement`: with this value: where parameter servers run
    - `replicas_per_rank`: with this value: copies of the model in one rank, each on a GPU or a
      share of its cores
    - `steps_between_averages`: with this value: steps between two averages of the weights, for
      strategies that average them
    - `outer_learning_rate`: with this value: of the outer optimizer, for `torch_diloco`
    - `outer_momentum`: with this value: Nesterov's, of the outer optimizer, for `torch_diloco`
    - `ranks_per_agent`: with this value: ranks that train on one agent, each on its share of the
      cores; `world_size` is a multiple of it
    - `device`: with this value: what ranks train on
    - `gpus_per_rank`: with this value: GPUs of each rank of a script, with `device = "gpu"`; a
      strategy takes one for each replica
    - `placement`: with this value: where operators run
    - `batch_split`: with this value: how the ranks of a synchronous strategy but `torch_pipeline`
      share a batch
    - `optimizer`: with this value: how gradients become updates of the weights, for strategies of
      PyTorch
    - `learning_rate`: with this value: of the optimizer, for strategies of PyTorch
    - `lr_scaling`: with this value: how the learning rate follows the global batch size, for
      strategies of PyTorch
    - `lr_warmup_steps`: with this value: first steps of a training, over which the learning rate
      rises evenly, for strategies of PyTorch; with `steps` those of `warmup_steps` are among them
    - `precision`: with this value: numbers in which the layers are computed, for strategies of
      PyTorch
    - `gradient_accumulation_steps`: with this value: parts of a rank's batch, in turn, whose
      gradients are exchanged once, for strategies of PyTorch but `torch_pipeline`
    - `pipeline_microbatches`: with this value: equal parts of a batch that follow each other
      through the stages of a model, for `torch_pipeline`; the batch is a multiple of it
    - `pipeline_cut`: with this value: of what the largest stage of a model has as little as can be,
      for `torch_pipeline`
    - `gradient_bucket_mib`: with this value: gradients that are summed at once while the backward
      pass goes on, for `torch_ddp`; the first at most 1
    - `activation_checkpointing`: with this value: what of the forward pass is kept in memory for
      the backward pass, for strategies of PyTorch but `torch_fsdp` and `torch_pipeline`
    - `compile`: with this value: what compiles the model
    - `input_pipeline`: with this value: where a step's examples come from
    - `data_workers`: with this value: what loads a rank's batches with `input_pipeline = "loader"`:
      threads of TensorFlow, processes of PyTorch; 0: the rank itself
    - `network`: with this value: name of an agents' network; in results also the emulator, such as
      `tc_netem`
    - `pass_`: with this value: what of a step is run
    - `one_way_delay_ms`: with this value: delay added to every packet that an agent sends
    - `jitter_ms`: with this value: variation of the delay, at most the delay
    - `packet_loss_percent`: with this value: share of packets dropped
    - `bandwidth_mbit_per_s`: with this value: limit of what an agent sends; in sweeps at least
      0.012
    """

    sweep: int | None
    origin: str | None
    instance_type: str | None
    fingerprint: str | None
    status: str | None
    model: str | None
    dataset: str | None
    strategy: str | None
    world_size: int | None
    global_batch_size: int | None
    server_count: int | None
    server_placement: str | None
    replicas_per_rank: int | None
    steps_between_averages: int | None
    outer_learning_rate: float | None
    outer_momentum: float | None
    ranks_per_agent: int | None
    device: str | None
    gpus_per_rank: int | None
    placement: str | None
    batch_split: str | None
    optimizer: str | None
    learning_rate: float | None
    lr_scaling: str | None
    lr_warmup_steps: int | None
    precision: str | None
    gradient_accumulation_steps: int | None
    pipeline_microbatches: int | None
    pipeline_cut: str | None
    gradient_bucket_mib: float | None
    activation_checkpointing: str | None
    compile: str | None
    input_pipeline: str | None
    data_workers: int | None
    network: str | None
    pass_: str | None
    one_way_delay_ms: float | None
    jitter_ms: float | None
    packet_loss_percent: float | None
    bandwidth_mbit_per_s: float | None


class RecommendationQuery(TypedDict, total=False):
    """What is asked of a recommendation.

    - `origin`: whose measurements; `farm` by default
    - `strategy`: only these, with commas between them
    - `instance_types`: only these, with commas between them
    - `prices`: of one VM in USD an hour, by instance type, such as m5.large=0.1,c5.large=0.08;
      `unnamed` is of machines whose type is not known. Others as in the server's table
    - `alpha`: weight of time, in 1/s
    - `beta`: weight of cost, in 1/USD
    - `model`: needed where the origin has several
    - `dataset`: needed where the origin has several
    - `script`: of your own, instead of `model`: its newest version
    - `script_sha256`: another version of `script`
    - `parameter`: of `script`, such as `hidden=256,lr=1e-3`
    - `pass_`: `forward_backward` by default
    - `epochs`: how long the training is; 1 by default
    - `target_accuracy`: A ratio: the training ends where it is reached. Instead of `epochs`
    - `world_sizes`: only these beside one machine, such as 2,3,4
    - `network`: only what made the delay so, with commas between them
    - `budget_usd`: the most it may cost
    - `deadline_s`: the longest it may take
    - `min_accuracy`: A ratio it must reach
    - `machines`: how many are at hand
    - `global_batch_size`: examples in one step of the whole gang
    - `one_way_delay_ms`: delay added to every packet that an agent sends
    - `jitter_ms`: variation of the delay, at most the delay
    - `packet_loss_percent`: share of packets dropped
    - `bandwidth_mbit_per_s`: limit of what an agent sends; in sweeps at least 0.012
    """

    origin: str | None
    strategy: str | Sequence[str] | None
    instance_types: str | Sequence[str] | None
    prices: str | Mapping[str, float] | None
    alpha: float | None
    beta: float | None
    model: str | None
    dataset: str | None
    script: str | None
    script_sha256: str | None
    parameter: str | Sequence[str] | None
    pass_: str | None
    epochs: int | None
    target_accuracy: float | None
    world_sizes: str | Sequence[int] | None
    network: str | Sequence[str] | None
    budget_usd: float | None
    deadline_s: float | None
    min_accuracy: float | None
    machines: int | None
    global_batch_size: Required[int]
    one_way_delay_ms: float | None
    jitter_ms: float | None
    packet_loss_percent: float | None
    bandwidth_mbit_per_s: float | None


class PlanQuery(TypedDict, total=False):
    """What is asked of a plan.

    - `origin`: whose measurements; `farm` by default
    - `strategy`: only these, with commas between them
    - `instance_types`: only these, with commas between them
    - `prices`: of one VM in USD an hour, by instance type, such as m5.large=0.1,c5.large=0.08;
      `unnamed` is of machines whose type is not known. Others as in the server's table
    - `alpha`: weight of time, in 1/s
    - `beta`: weight of cost, in 1/USD
    - `model`: only this; needed where nothing is measured yet
    - `dataset`: only this; needed where nothing is measured yet
    - `fingerprint`: which hardware, by its first characters
    - `world_sizes`: such as 1,2,4; those that were measured
    - `global_batch_sizes`: such as 64,256; those that were measured
    - `one_way_delays_ms`: such as 0,20,100; those that were measured
    - `next`: at most so many; 5, or 100 with `until_regret`
    - `until_regret`: as many as it takes, such as 0.05 for 5 %
    - `budget_usd`: the plan must not cost more
    - `budget_machine_hours`: the same where there are no prices
    - `steps`: of a measurement; 30
    - `warmup_steps`: before them; 5
    - `seed`: decides between equals; 0
    """

    origin: str | None
    strategy: str | Sequence[str] | None
    instance_types: str | Sequence[str] | None
    prices: str | Mapping[str, float] | None
    alpha: float | None
    beta: float | None
    model: str | None
    dataset: str | None
    fingerprint: str | None
    world_sizes: str | Sequence[int] | None
    global_batch_sizes: str | Sequence[int] | None
    one_way_delays_ms: str | Sequence[float] | None
    next: int | None
    until_regret: float | None
    budget_usd: float | None
    budget_machine_hours: float | None
    steps: int | None
    warmup_steps: int | None
    seed: int | None
