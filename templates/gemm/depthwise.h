// Convolutions of each channel by itself: sums over the taps of a window, with neighbouring channels as lanes.
//
// Preconditions: AVX2 and FMA; those of patches.h, for floats; as many columns as channels. B is packed as multiply.h says,
// its depth the taps (ky, kx).
//
// A few neighbouring windows of a line are summed at once: each weight is read once for all of them. Taps outside of the
// image have no products: at the ends of a line windows have fewer of them, and are summed one by one.
#pragma once

#include "patches.h"

namespace icpu::gemm {

// The first `count` of a vector of floats, zeros after them; the others are not read.
inline ICPU_INLINE Reg<float> first_floats(const float* from, int64_t count) {
  const Reg<int32_t> lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return _mm256_maskload_ps(from, (__m256i)(lane < splat_reg(static_cast<int32_t>(count))));
}

// The row of the table: channels of a panel, and windows at once, which 12 registers of sums hold.
struct ChannelsAvx2 {
  using Weight = float;
  static constexpr int64_t kColumns = 64, kStep = 1;
  static constexpr int kBlock = 6;
};

// Lines of windows, some panels at a time.
template <class Micro>
class ChannelsOfThread {
  using Weight = typename Micro::Weight;
  static constexpr int64_t kColumns = Micro::kColumns;
  static constexpr int kMost = Micro::kBlock;  // windows at once
  static constexpr int kVectors = 2;  // of channels at once
  static constexpr int64_t kSegment = 2 * kMost;  // windows that an epilogue gets together, at most

 public:
  // Whose weights meet all lines of windows, and stay in the L1 cache.
  static int64_t panels_of_group(const Patches& p) {
    constexpr int64_t kBytes = 8 * 1024;
    return std::max<int64_t>(1, kBytes / (panel_size(p) * int64_t(sizeof(Weight))));
  }

  ChannelsOfThread(const Patches& p, const float* images, const Weight* b, const Epilogue<float>& epilogue)
      : p_(p), images_(images), b_(b), epilogue_(epilogue) {
    panel_size_ = panel_size(p);
    runs_ = scratch<Run, 24>(p.across);
    const int64_t reach = (p.kernel_x - 1) * p.dilation_x, last = p.width - 1 - reach + p.pad_x;
    const int64_t inside = std::min(ceil_div(p.pad_x, p.stride_x), p.across);
    const int64_t outside = std::max(inside, last < 0 ? 0 : std::min(last / p.stride_x + 1, p.across));
    for (int64_t x = 0, count; x < p.across; x += count) {
      count = inside <= x && x < outside ? equal_parts(outside - x, kMost) : 1;
      const int64_t left = x * p.stride_x - p.pad_x;
      const Range taps = taps_inside(left, p.width, p.kernel_x, p.dilation_x);
      runs_[many_++] = {count, (left + taps.begin * p.dilation_x) * p.by_pixel, taps.begin * kColumns, taps.end - taps.begin};
    }
  }

  // Lines are numbered down an image, then by images.
  void run(Range lines, Range panels) const {
    for (int64_t line = lines.begin; line < lines.end; ++line) sum_line(line, panels);
  }

 private:
  static int64_t panel_size(const Patches& p) { return round_up(p.kernel_y * p.kernel_x, Micro::kStep) * kColumns; }

  // Windows at once: how many, where the first of their taps that lie inside of the image are in a line of pixels and of
  // weights, and how many such taps there are.
  struct Run {
    int64_t windows, pixel, weight, taps;
  };

  // Pixels and weights of the taps of windows: how many lines there are of them, taps in a line, and channels left.
  struct Taps {
    const float* pixels;
    const Weight* weights;
    int64_t lines, across, channels;
  };

  // Which of `count` taps, from pixel `first` on, lie inside of an image of so many pixels.
  static Range taps_inside(int64_t first, int64_t pixels, int64_t count, int64_t dilation) {
    const int64_t begin = first < 0 ? std::min(ceil_div(-first, dilation), count) : 0;
    const int64_t end = first < pixels ? std::min(ceil_div(pixels - first, dilation), count) : 0;
    return {begin, std::max(begin, end)};
  }

  void sum_line(int64_t line, Range panels) const {
    const int64_t top = line % p_.down * p_.stride_y - p_.pad_y;
    const Range taps = taps_inside(top, p_.height, p_.kernel_y, p_.dilation_y);
    const float* const pixels = images_ + line / p_.down * p_.by_image + (top + taps.begin * p_.dilation_y) * p_.by_line;
    const Weight* const weights = b_ + taps.begin * p_.kernel_x * kColumns;
    int64_t row = line * p_.across;
    for (int64_t run = 0, end; run < many_; run = end) {
      int64_t windows = 0;
      for (end = run; end < many_ && windows + runs_[end].windows <= kSegment; ++end) windows += runs_[end].windows;
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const int64_t width = std::min(kColumns, p_.channels - panel * kColumns);
        sum_panel({pixels + panel * kColumns, weights + panel * panel_size_, taps.end - taps.begin, 0, width}, {run, end},
                  row, windows, panel);
      }
      row += windows;
    }
  }

  // Some runs of a line, of one panel.
  void sum_panel(const Taps& line, Range runs, int64_t row, int64_t windows, int64_t panel) const {
    alignas(64) float sums[kSegment * kColumns];
    float* to = sums;
    for (int64_t n = runs.begin; n < runs.end; ++n) {
      const Run& run = runs_[n];
      const Taps taps{line.pixels + run.pixel, line.weights + run.weight, line.lines, run.taps, line.channels};
      [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
        ((run.windows == n + 1 ? sum_channels<n + 1>(taps, to) : void()), ...);
      }(std::make_integer_sequence<int, kMost>{});
      to += run.windows * kColumns;
    }
    epilogue_(row, windows, panel, line.channels, sums);
  }

  // The channels of a panel, some at a time.
  template <int windows>
  void sum_channels(const Taps& taps, float* sums) const {
    constexpr int64_t together = kVectors * kLanes;
    for (int64_t c = 0, count; c < taps.channels; c += count) {
      const Taps some{taps.pixels + c, taps.weights + c, taps.lines, taps.across, taps.channels - c};
      if (some.channels >= together) {
        sum<windows, kVectors, true>(some, sums + c);
      } else if (some.channels >= kLanes) {
        sum<windows, 1, true>(some, sums + c);
      } else {
        sum<windows, 1, false>(some, sums + c);
      }
      count = some.channels >= together ? together : kLanes;
    }
  }

  // Where an address comes from: else the compiler keeps the distances of all of them, more than there are registers.
  static ICPU_INLINE void hide(const float*& at) { asm("" : "+r"(at)); }

  template <int windows, int vectors, bool whole>
  void sum(const Taps& taps, float* sums) const {
    Reg<float> sum[windows][vectors] = {};
    const int64_t apart = p_.stride_x * p_.by_pixel, step = p_.dilation_x * p_.by_pixel;
    for (int64_t y = 0; y < taps.lines; ++y) {
      const float* pixel = taps.pixels + y * p_.dilation_y * p_.by_line;
      const Weight* weight = taps.weights + y * p_.kernel_x * kColumns;
      for (int64_t x = 0; x < taps.across; ++x, pixel += step, weight += kColumns) {
        Reg<float> line[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) line[v] = load_reg(weight + v * kLanes);
        const float* at = pixel;
#pragma GCC unroll 6
        for (int i = 0; i < windows; ++i, at += apart) {
          if (i == 3) hide(at);
#pragma GCC unroll 2
          for (int v = 0; v < vectors; ++v) {
            const Reg<float> value = whole ? load_reg(at + v * kLanes) : first_floats(at + v * kLanes, taps.channels);
            sum[i][v] = fma_reg(value, line[v], sum[i][v]);
          }
        }
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < windows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) std::memcpy(sums + i * kColumns + v * kLanes, &sum[i][v], sizeof(sum[i][v]));
    }
  }

  const Patches& p_;
  const float* const images_;
  const Weight* const b_;
  const Epilogue<float>& epilogue_;
  int64_t panel_size_ = 0;
  Run* runs_ = nullptr;  // of a line
  int64_t many_ = 0;
};

// The convolution of images, each channel by itself.
template <class Micro>
[[gnu::noinline]] void convolve_channels(const Patches& patches, const float* images, int64_t windows, int64_t columns,
                                         const typename Micro::Weight* b, int limit, const Epilogue<float>& epilogue) {
  if (windows <= 0 || columns <= 0) return;
  const int64_t lines = windows / patches.across, panels = ceil_div(columns, Micro::kColumns);
  const int threads = threads_for(windows * columns * patches.kernel_y * patches.kernel_x / 64, kThreadWork, limit);
  const int64_t groups = ceil_div(panels, ChannelsOfThread<Micro>::panels_of_group(patches));
  parallel_work(groups * lines, 1, threads, kPieces, [&](const Take& take) {
    const ChannelsOfThread<Micro> channels(patches, images, b, epilogue);
    for (int64_t begin, end, count; take(begin, end);) {
      for (int64_t at = begin; at < end; at += count) {
        const int64_t line = at % lines;
        count = std::min(lines - line, end - at);
        channels.run({line, line + count}, share_of(panels, at / lines, groups));
      }
    }
  });
}

}  // namespace icpu::gemm
