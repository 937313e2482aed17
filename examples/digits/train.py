"""Train a small CNN on scikit-learn's handwritten digits, data parallel on CPUs.

    python train.py --epochs 5
    torchrun --nproc-per-node 4 train.py --epochs 30

Every `--checkpoint-every` steps rank 0 saves model, optimizer and position. A run that finds a checkpoint resumes from
it, also in the middle of an epoch and with another number of processes.
"""

import argparse
import csv
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=16, help="per process")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"))
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--out", type=Path, default=Path("digits-out"), help="folder for loss.csv and result.json")
    return parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 2 * 2, 10))

    def forward(self, x):
        return self.head(self.features(x))


def load_data():
    """The 1,797 digits of 8 x 8 pixels, every fifth held out."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~held_out], labels[~held_out]), TensorDataset(images[held_out], labels[held_out])


def augment(images):
    """Shift the batch by up to one pixel each way."""
    dx, dy = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(images, (dy, dx), dims=(2, 3))


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    images, labels = data.tensors
    correct = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return correct


def save(path, net, optimizer, epoch, seen, step):
    position = {"epoch": epoch, "seen": seen, "step": step}
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), **position}, path)


def load(path, net, optimizer):
    """The epoch, the number of its samples that all processes together have used, and the step."""
    if not path.exists():
        return 0, 0, 0
    saved = torch.load(path)
    net.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["epoch"], saved["seen"], saved["step"]


def train(args, net, model, optimizer, data, rank, world):
    """Train from the checkpoint, if there is one, to the last epoch; returns the numbers of epochs and steps."""
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    epoch, seen, step = load(args.checkpoint, net, optimizer)
    if rank == 0:
        if step:
            print(f"resumed at epoch {epoch} step {step} on {world} processes", flush=True)
        args.out.mkdir(parents=True, exist_ok=True)
        losses = csv.writer((args.out / "loss.csv").open("a", buffering=1))

    while epoch < args.epochs:
        sampler.set_epoch(epoch)
        skip = seen // (args.batch_size * world)
        for i, (images, labels) in enumerate(loader):
            if i < skip:
                continue
            optimizer.zero_grad()
            loss = F.cross_entropy(model(augment(images)), labels)
            loss.backward()
            optimizer.step()
            step += 1
            seen += args.batch_size * world
            if rank == 0:
                losses.writerow([f"{time.time():.3f}", step, f"{loss.item():.5f}"])
                if step % args.log_every == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
                if step % args.checkpoint_every == 0:
                    save(args.checkpoint, net, optimizer, epoch, seen, step)
        epoch, seen = epoch + 1, 0
    return epoch, step


def main():
    args = parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    world = dist.get_world_size() if dist.is_initialized() else 1
    torch.manual_seed(args.seed)

    train_data, test_data = load_data()
    net = Net()
    model = DistributedDataParallel(net) if dist.is_initialized() else net
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    epoch, step = train(args, net, model, optimizer, train_data, rank, world)

    accuracy = evaluate(net, test_data)  # on all ranks: gloo's threads can abort one that ends right after a collective
    if rank == 0:
        save(args.checkpoint, net, optimizer, epoch, 0, step)
        (args.out / "result.json").write_text(json.dumps({"accuracy": accuracy, "steps": step, "epochs": epoch}))
        print(f"accuracy {accuracy:.4f} after {step} steps", flush=True)
    if dist.is_initialized():
        del model  # before the group: freed after it, DDP can wait forever for gloo's threads (torch 2.13)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
