"""Lines of public training scripts with and without a training loss, each as its script prints it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.run.loss_parser import LONGEST, loss_in, losses

LOSSES = {
    # the examples of PyTorch: mnist, imagenet, the CIFAR-10 tutorial
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300039": 2.300039,
    "Epoch: [0][  10/5005]\tTime  0.512 ( 0.941)\tData  0.000 ( 0.310)\tLoss 6.9311e+00 (6.9802e+00)": 6.9311,
    "[1,  2000] loss: 2.173": 2.173,
    # nanoGPT and minGPT
    "iter 2920: loss 3.9883, time 1099.34ms, mfu 15.34%": 3.9883,
    "step 3000: train loss 4.0390, val loss 4.0427": 4.0390,
    "epoch 1 iter 5: train loss 2.30412. lr 6.000000e-04": 2.30412,
    # Megatron-LM
    " iteration      122/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 86545.2 | "
    "learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.2": 2.50422,  # noqa: E501
    # transformers' Trainer, before and since its numbers are texts
    "{'loss': 2.119, 'grad_norm': 37.657958984375, 'learning_rate': 4.58e-05, 'epoch': 0.25}": 2.119,
    "{'loss': '2.317', 'grad_norm': '1.25', 'learning_rate': '4.9e-05', 'epoch': '0.05'}": 2.317,
    # torchtitan, with its colours
    "[rank0]:[titan] 2026-02-24 19:46:17,508 - root - INFO - \x1b[31mstep:  4  \x1b[32mloss:  7.62585  \x1b[33m"
    "grad_norm: 26.6250  memory: 66.91GiB(37.51%)": 7.62585,
    # Lightning's progress bar, as it is redrawn
    "Epoch 0:  22%|██▏       | 4/18 [00:17<01:02,  4.47s/it, loss=9.926, v_num=1]\r"
    "Epoch 0:  28%|██▊       | 5/18 [00:20<00:53,  4.14s/it, loss=9.847, v_num=1]": 9.847,
    "Epoch 0: 45%|███       | 42/93 [00:01<00:01, 25.5it/s, train_loss_step=0.231, train_loss_epoch=0.5]": 0.231,
    # litgpt
    "iter 1760 | step 220: loss 1.5947, iter time: 263.85 ms (optimizer.step)": 1.5947,
    "Epoch 1 | iter 2 step 1 | loss train: 1.506, val: n/a | iter time: 174.64 ms": 1.506,
    # detectron2, mmdetection
    "[08/14 10:26:13 d2.utils.events]:  eta: 0:43:51  iter: 6319  total_loss: 0.4072  loss_cls: 0.06762": 0.4072,
    "2020-05-21 04:01:24,249 - mmdet - INFO - Epoch [1][15/678]\tlr: 0.00020, loss_rpn_cls: 0.6986, s0.loss_cls: 0.56, "
    "loss: 3.4410": 3.441,
    # fairseq, timm, Keras, TensorFlow
    '{"epoch": 1, "update": 0.09, "loss": "12.304", "ppl": "5057.1", "wps": "9000"}': 12.304,
    "Train: 0 [ 150/1251 ( 12%)]  Loss: 6.943 (6.95)  Time: 0.309s": 6.943,
    "1875/1875 [==============================] - 5s 3ms/step - loss: 0.2213 - accuracy: 0.93 - val_loss: 0.11": 0.2213,
    "INFO:tensorflow:loss = 2.3125682, step = 100 (0.421 sec)": 2.3125682,
    "INFO:tensorflow:Step 100 per-step time 0.813s loss=1.396": 1.396,
    "Average loss at step 2000: 5.31": 5.31,
    # by hand
    "epoch 0 step 25 loss 0.3412": 0.3412,
    "loss: tensor(2.3041, grad_fn=<NllLossBackward0>)": 2.3041,
    "Epoch 3 finished with loss 1.25": 1.25,
    "training loss is -4.5e-3": -0.0045,
    "loss:0": 0.0,
}
WITHOUT_LOSS = [
    "Test set: Average loss: 0.0412, Accuracy: 9871/10000 (99%)",
    "Test: [  0/196]\tTime  5.1 ( 5.1)\tLoss 9.8e-01 (9.8e-01)\tAcc@1  75.0",
    "{'eval_loss': 1.249, 'eval_runtime': 49.19, 'eval_steps_per_second': 0.06, 'epoch': 0.44}",
    "{'train_runtime': 1207.3, 'train_samples_per_second': 12.1, 'train_loss': 1.7301, 'epoch': 3.0}",
    "iter 4800: val loss 1.7258, val time: 3778.02 ms",
    "2026-01-01 | valid on 'valid' subset | loss 4.1 | ppl 17.1",
    "Validation: epoch 3, loss 0.31",
    "iter 3010: loss nan, time 1019.95ms, mfu 14.12%",
    "iteration 5426/ 250000 | global batch size: 8 | loss scale: 65536.0 | grad norm: nan |",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
    "policy loss: 0.21, value loss: 0.32, entropy: 1.1",
    "loss_cls: 0.31  loss_box_reg: 0.22",
    "best loss 0.4 at epoch 3",
    "criterion = CrossEntropyLoss(ignore_index=-100)",
    "20 packets transmitted, 19 received, packet loss 5%, time 100ms",
    "a lossless 3 bit codec",
    "early stopping: no better loss in 5 epochs",
    "Averaged stats: lr: 0.000005  loss: 0.6884 (0.8518)",
    "accuracy 0.98",
    "",
]


@pytest.mark.parametrize(("line", "loss"), LOSSES.items())
def test_a_training_loss_is_read(line: str, loss: float) -> None:
    assert loss_in(line) == pytest.approx(loss)
    assert loss_in(f"[0]: {line}\n") == pytest.approx(loss)


@pytest.mark.parametrize("line", WITHOUT_LOSS)
def test_a_number_that_is_not_a_training_loss_is_ignored(line: str) -> None:
    assert loss_in(line) is None


def test_lines_keep_their_times() -> None:
    lines = [(1.0, "loss 3"), (2.0, "val loss 3.1"), (3.0, "saving"), (4.5, "loss 2.5")]
    assert list(losses(lines)) == [(1.0, 3.0), (4.5, 2.5)]


@given(st.text(alphabet="los_train. :=0123456789e-\r\x1b[", max_size=200))
def test_no_line_breaks_the_reader(line: str) -> None:
    assert loss_in(line) is None or isinstance(loss_in(line), float)


def test_only_the_newest_part_of_an_endless_line_counts() -> None:
    assert loss_in("loss" * 10_000 + " loss: 1.5") == 1.5
    assert loss_in("loss: 1.5" + "x" * LONGEST) is None
