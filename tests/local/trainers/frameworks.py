"""Scripts of frameworks, as their users write them, that note their steps as `elastic.SCRIPT` does."""

BEGIN = """
import json, os, sys, time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
FOLDER = Path(sys.argv[1])
WISHES = json.loads((FOLDER / "wishes.json").read_text())
ABOUT = {"rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"]),
         "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
TRACE = (FOLDER / f"trace-{ABOUT['rank']}-{os.getpid()}.jsonl").open("a", buffering=1)


class Numbers(Dataset):
    def __len__(self):
        return WISHES["length"]

    def __getitem__(self, index):
        return {"indices": index, "x": torch.tensor([float(index % 17), 1.0])}


def wait(step):
    (FOLDER / f"reached-{ABOUT['rank']}").write_text(str(step))
    while (FOLDER / "hold").exists() and step >= int((FOLDER / "hold").read_text() or 0):
        time.sleep(0.005)


def note(step, epoch, samples, loss):
    line = {"step": step, "epoch": epoch, "samples": samples, "loss": loss, "length": 0, **ABOUT}
    TRACE.write(json.dumps(line) + "\\n")
"""
LIGHTNING = (
    BEGIN
    + """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)

    def training_step(self, batch, number):
        wait(self.global_step + 1)
        loss = (self.net(batch["x"]) - 1.0).square().mean()
        self.loss = loss.item()
        return loss

    def on_train_batch_end(self, outputs, batch, number):
        note(self.global_step, self.current_epoch, batch["indices"].tolist(), self.loss)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.001, momentum=0.9)


lightning.seed_everything(0)
loader = DataLoader(Numbers(), batch_size=WISHES["batch"], shuffle=True)
trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=WISHES["epochs"], logger=False,
    enable_progress_bar=False, enable_model_summary=False,
    callbacks=[ModelCheckpoint(dirpath=FOLDER / "out", every_n_train_steps=WISHES["every"], save_last=True)],
)
trainer.fit(Net(), loader, ckpt_path="last" if (FOLDER / "out/last.ckpt").exists() else None)
"""
)
TRANSFORMERS = (
    BEGIN
    + """
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)

    def forward(self, indices, x):
        loss = (self.net(x) - 1.0).square().mean()
        self.seen = (indices.tolist(), loss.item())
        return {"loss": loss}


class Notes(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        wait(state.global_step + 1)

    def on_step_end(self, args, state, control, model, **_):
        a_epoch = state.max_steps // WISHES["epochs"]
        note(state.global_step, (state.global_step - 1) // a_epoch, *model.seen)


arguments = TrainingArguments(
    output_dir=str(FOLDER / "out"), use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=WISHES["batch"],
    accelerator_config={"split_batches": True}, num_train_epochs=WISHES["epochs"], save_steps=WISHES["every"],
    report_to=[], disable_tqdm=True, logging_strategy="no", remove_unused_columns=False,
)
torch.manual_seed(0)
trainer = Trainer(model=Net(), args=arguments, train_dataset=Numbers(), callbacks=[Notes()])
last = get_last_checkpoint(arguments.output_dir) if os.path.isdir(arguments.output_dir) else None
trainer.train(resume_from_checkpoint=last)
"""
)
ACCELERATE = (
    BEGIN
    + """
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration

sharing = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
accelerator = Accelerator(cpu=True, dataloader_config=sharing)
torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
loader = DataLoader(Numbers(), batch_size=WISHES["batch"], shuffle=True)
model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
step = max((int(path.name[5:]) for path in FOLDER.glob("step-*")), default=0)
if step:
    accelerator.load_state(str(FOLDER / f"step-{step}"))
first, seen = divmod(step, len(loader))
for epoch in range(first, WISHES["epochs"]):
    loader.set_epoch(epoch)
    for batch in skip_first_batches(loader, seen) if epoch == first and seen else loader:
        wait(step + 1)
        optimizer.zero_grad()
        loss = (model(batch["x"]) - 1.0).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        note(step, epoch, batch["indices"].tolist(), loss.item())
        if step % WISHES["every"] == 0:
            accelerator.save_state(str(FOLDER / f"step-{step}"))
accelerator.end_training()
"""
)
