"""transformers' Trainer: get_last_checkpoint, save_total_limit."""

import os

import torch
from noting import EVERY, STEPS, note
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 2)

    def forward(self, x):
        return {"loss": self.net(x).square().mean()}


class Notes(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        note(state.global_step)


torch.set_num_threads(1)
args = TrainingArguments(
    output_dir="output",
    max_steps=STEPS,
    save_steps=EVERY,
    save_total_limit=2,
    per_device_train_batch_size=4,
    use_cpu=True,
    ddp_backend="gloo",
    report_to=[],
    disable_tqdm=True,
    logging_strategy="no",
)
data = [{"x": torch.randn(8)} for _ in range(800)]
trainer = Trainer(model=Net(), args=args, train_dataset=data, callbacks=[Notes()])
last_checkpoint = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
trainer.train(resume_from_checkpoint=last_checkpoint)
