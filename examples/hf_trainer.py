# By hand: torchrun --nproc-per-node 2 examples/hf_trainer.py --batch-size 16 --accumulate 2
"""Train a tiny GPT-2 on made-up texts with the Trainer of Hugging Face's transformers."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCABULARY = 100
LENGTH = 32


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Texts that count upwards from a token of their own."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) + index) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank in a step")
    parser.add_argument("--accumulate", type=int, default=1, help="in so many parts")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", default="hf_trainer_output")
    given = parser.parse_args()

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = TrainingArguments(
        output_dir=given.output,
        max_steps=given.steps,
        per_device_train_batch_size=given.batch_size // given.accumulate,
        gradient_accumulation_steps=given.accumulate,
        use_cpu=True,
        ddp_backend="gloo",
        save_strategy="no",
        report_to=[],
    )
    Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Counting()).train()


if __name__ == "__main__":
    main()
