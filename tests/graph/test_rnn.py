"""Recurrent layers, which Dynamo takes with `allow_rnn`: ATen's oneDNN layer runs them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.e2e.support import compile_counted


@torch.no_grad()
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_lstm_is_like_eager_mode(layers: int, bidirectional: bool) -> None:
    net = nn.LSTM(8, 8, layers, batch_first=True, bidirectional=bidirectional).eval()
    x = torch.randn(2, 5, 8)
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled, reports = compile_counted(net)
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
        net.weight_hh_l0.mul_(2)
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
    assert len(reports) == 1
