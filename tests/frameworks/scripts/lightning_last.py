"""Lightning: ModelCheckpoint with save_last, and ckpt_path="last"."""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from noting import EVERY, STEPS, note
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 2)

    def training_step(self, batch, _):
        return self.net(batch[0]).square().mean()

    def on_train_batch_end(self, *_):
        note(self.global_step)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


torch.set_num_threads(1)
trainer = lightning.Trainer(
    accelerator="cpu",
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_steps=STEPS,
    logger=False,
    enable_progress_bar=False,
    callbacks=[ModelCheckpoint(dirpath="checkpoints", every_n_train_steps=EVERY, save_last=True)],
)
trainer.fit(Net(), DataLoader(TensorDataset(torch.randn(800, 8)), batch_size=4), ckpt_path="last")
