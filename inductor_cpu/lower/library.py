"""Operators that a library computes by decision, not for want of a rule, each with the reason that `explain` shows."""

from __future__ import annotations

_SEARCH = "sorting and selecting are ATen's"
_SIZE = "the size of its result depends on data"

#: Operator packet name -> the reason to show.
LIBRARY: dict[str, str] = {
    # matrix products, convolutions, attention
    **dict.fromkeys(("aten::convolution", "aten::convolution_backward"), "oneDNN's convolution"),
    **dict.fromkeys(
        ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::mv", "aten::dot", "aten::vdot"),
        "the BLAS matrix product",
    ),
    **dict.fromkeys(
        (
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        "ATen's flash attention",
    ),
    **dict.fromkeys(("aten::_cdist_forward", "aten::_pdist_forward"), "ATen's distances, by a matrix product if large"),
    **dict.fromkeys(("aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r"), "the FFT library"),
    # no loop over independent points
    "aten::masked_scatter": "which element goes where is a running count of the mask",
    **dict.fromkeys(("aten::kthvalue", "aten::median", "aten::mode"), _SEARCH),
    **dict.fromkeys(("aten::nonzero", "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim"), _SIZE),
    "aten::_embedding_bag": "ATen's embedding bag, a sum of rows whose number depends on data",
    "aten::grid_sampler_2d": "ATen's sampler shares the corner weights among channels",
    # what the program may see or do
    "aten::resize_": "it changes the memory of its argument",
    "aten::_assert_async": "a check of values at run time",
    "aten::sym_constrain_range": "a check of sizes at run time",
    "aten::sym_constrain_range_for_size": "a check of sizes at run time",
}
