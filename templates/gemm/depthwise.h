// Convolutions of each channel by itself: sums over the taps of a window, with neighbouring channels as lanes.
//
// Preconditions: AVX2 and FMA, or AVX-512; those of patches.h; as many columns as channels. B is packed as multiply.h says,
// its depth the taps (ky, kx).
//
// A few neighbouring windows of a line are summed at once: each weight is read once for all of them. Taps outside of the
// image have no products: at the ends of a line windows have fewer of them, and are summed one by one. Pixels of bf16 and
// f16 become floats first, some lines at a time: each is in many windows.
#pragma once

#include "patches.h"

namespace icpu::gemm {

// The rows of the table: channels of a panel, and windows at once, two vectors of sums each, which registers hold.
template <class T>
struct Channels {
  using Source = T;
  using Weight = T;
  static constexpr int64_t kColumns = 64, kStep = 1;
  static constexpr int kBlock = kLanes == 16 ? 8 : 6;
};
struct ChannelsF32 : Channels<float> {};
struct ChannelsBf16 : Channels<bf16> {};
struct ChannelsF16 : Channels<f16> {};

// Lines of windows, some panels at a time.
template <class Micro>
class ChannelsOfThread {
  using Source = typename Micro::Source;
  using Weight = typename Micro::Weight;
  static constexpr int64_t kColumns = Micro::kColumns;
  static constexpr int kMost = Micro::kBlock;  // windows at once
  static constexpr int kVectors = 2;  // of channels at once
  static constexpr int64_t kSegment = 2 * kMost;  // windows that an epilogue gets together, at most
  static constexpr bool kWidens = !std::is_same_v<Source, float>;
  static constexpr int64_t kFloatBytes = kPackedBytes / 2;  // of pixels as floats

 public:
  // Whose weights meet all lines of windows, and stay in the L1 cache; of pixels as floats twice as many lines as a window
  // has stay in a part of the L2 cache.
  static int64_t panels_of_group(const Patches& p) {
    constexpr int64_t kBytes = 8 * 1024;
    int64_t most = kBytes / (panel_size(p) * int64_t(sizeof(Weight)));
    const int64_t line = std::max<int64_t>(p.width, 1) * kColumns * int64_t(sizeof(float));
    if constexpr (kWidens) most = std::min(most, kFloatBytes / (2 * reach(p) * line));
    return std::max<int64_t>(1, most);
  }

  ChannelsOfThread(const Patches& p, const Source* images, const Weight* b, const Epilogue<float>& epilogue)
      : p_(p), images_(images), b_(b), epilogue_(epilogue) {
    panel_size_ = panel_size(p);
    runs_ = scratch<Run, 24>(p.across);
    inside_ = scratch<uint32_t, 26>(p.across * p.kernel_x);
    for (int64_t x = 0, count; x < p.across; x += count) {
      count = equal_parts(p.across - x, kMost);
      runs_[many_] = {count, x * p.stride_x - p.pad_x};
      for (int64_t tap = 0; tap < p.kernel_x; ++tap) {
        inside_[many_ * p.kernel_x + tap] = windows_inside(runs_[many_], tap * p.dilation_x);
      }
      ++many_;
    }
  }

  // Lines of windows are numbered down an image, then by images.
  void run(Range lines, Range panels) const {
    for (int64_t line = lines.begin, count; line < lines.end; line += count) {
      const int64_t y = line % p_.down;
      const Source* const image = images_ + line / p_.down * p_.by_image;
      count = std::min(lines.end - line, p_.down - y);
      if constexpr (kWidens) {
        count = std::min(count, lines_at_once(panels));
        sum_lines({y, y + count}, panels, line - y, floats_of(image, pixel_lines({y, y + count}), panels));
      } else {
        sum_lines({y, y + count}, panels, line - y, {image + panels.begin * kColumns, 0, p_.by_line, p_.by_pixel});
      }
    }
  }

 private:
  // Lines of pixels from the first to the last tap of a window.
  static int64_t reach(const Patches& p) { return (p.kernel_y - 1) * p.dilation_y + 1; }
  static int64_t panel_size(const Patches& p) { return round_up(p.kernel_y * p.kernel_x, Micro::kStep) * kColumns; }

  // Windows at once: how many, and the pixel of a line where the first one begins.
  struct Run {
    int64_t windows, pixel;
  };

  // Lines of pixels from number `first` on, of the channels of some panels.
  struct Lines {
    const float* from;
    int64_t first, by_line, by_pixel;
  };

  // Taps of windows: where the first one's pixel is, if it were inside of the image, and its weights; windows whose taps lie
  // inside, a mask for each tap of a line; how many lines there are, and channels left; what lies between the pixels of
  // neighbouring lines of taps, of neighbouring taps and windows.
  struct Taps {
    const float* pixels;
    const Weight* weights;
    const uint32_t* inside;
    int64_t lines, channels;
    int64_t by_line, by_tap, by_window;
  };

  // Which of `count` taps, from pixel `first` on, lie inside of an image of so many pixels.
  static Range taps_inside(int64_t first, int64_t pixels, int64_t count, int64_t dilation) {
    const int64_t begin = first < 0 ? std::min(ceil_div(-first, dilation), count) : 0;
    const int64_t end = first < pixels ? std::min(ceil_div(pixels - first, dilation), count) : 0;
    return {begin, std::max(begin, end)};
  }

  // The windows of a run whose tap, so many pixels from their first one, lies inside of the image: a bit for each.
  uint32_t windows_inside(const Run& run, int64_t tap) const {
    uint32_t bits = 0;
    for (int64_t i = 0; i < run.windows; ++i) {
      const int64_t pixel = run.pixel + tap + i * p_.stride_x;
      bits |= uint32_t{pixel >= 0 && pixel < p_.width} << i;
    }
    return bits;
  }

  int64_t channels_of(Range panels) const {
    return std::min(panels.end * kColumns, p_.channels) - panels.begin * kColumns;
  }

  // Of windows, whose pixels as floats stay in a part of the L2 cache.
  int64_t lines_at_once(Range panels) const {
    const int64_t bytes = p_.width * round_up(channels_of(panels), kLanes) * int64_t(sizeof(float));
    return std::max<int64_t>(0, kFloatBytes / std::max<int64_t>(bytes, 1) - reach(p_)) / p_.stride_y + 1;
  }

  // Those of an image that windows have taps in.
  Range pixel_lines(Range windows) const {
    const int64_t top = windows.begin * p_.stride_y - p_.pad_y;
    const int64_t last = (windows.end - 1) * p_.stride_y - p_.pad_y + (p_.kernel_y - 1) * p_.dilation_y;
    const int64_t begin = std::min(std::max<int64_t>(top, 0), p_.height);
    return {begin, std::max(begin, std::min(last + 1, p_.height))};
  }

  // Whole vectors of floats, zeros behind the channels.
  Lines floats_of(const Source* image, Range lines, Range panels) const {
    const int64_t channels = channels_of(panels), by_pixel = round_up(channels, kLanes), whole = channels / kLanes * kLanes;
    float* const to = scratch<float, 25>((lines.end - lines.begin) * p_.width * by_pixel);
    float* out = to;
    for (int64_t y = lines.begin; y < lines.end; ++y) {
      const Source* pixel = image + y * p_.by_line + panels.begin * kColumns;
      for (int64_t x = 0; x < p_.width; ++x, pixel += p_.by_pixel, out += by_pixel) {
        for (int64_t c = 0; c < whole; c += kLanes) store(out + c, load(pixel + c, Full<1>()), Full<1>());
        if (whole < channels) store(out + whole, load(pixel + whole, Tail(channels - whole)), Full<1>());
      }
    }
    return {to, lines.begin, p_.width * by_pixel, by_pixel};
  }

  // Lines of windows of an image, which `before` lines of other images precede.
  void sum_lines(Range lines, Range panels, int64_t before, const Lines& pixels) const {
    for (int64_t line = lines.begin; line < lines.end; ++line) sum_line(line, panels, (before + line) * p_.across, pixels);
  }

  void sum_line(int64_t line, Range panels, int64_t row, const Lines& image) const {
    const int64_t top = line * p_.stride_y - p_.pad_y;
    const Range taps = taps_inside(top, p_.height, p_.kernel_y, p_.dilation_y);
    const int64_t first = top + taps.begin * p_.dilation_y - image.first;
    const float* const pixels = image.from + (taps.begin < taps.end ? first * image.by_line : 0);
    const Weight* const weights = b_ + taps.begin * p_.kernel_x * kColumns;
    for (int64_t run = 0, end; run < many_; run = end) {
      int64_t windows = 0;
      for (end = run; end < many_ && windows + runs_[end].windows <= kSegment; ++end) windows += runs_[end].windows;
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const int64_t width = std::min(kColumns, p_.channels - panel * kColumns);
        const Taps some{pixels + (panel - panels.begin) * kColumns, weights + panel * panel_size_, inside_,
                        taps.end - taps.begin, width,
                        p_.dilation_y * image.by_line, p_.dilation_x * image.by_pixel, p_.stride_x * image.by_pixel};
        sum_panel(some, image.by_pixel, {run, end}, row, windows, panel);
      }
      row += windows;
    }
  }

  // Some runs of a line, of one panel.
  void sum_panel(const Taps& line, int64_t by_pixel, Range runs, int64_t row, int64_t windows, int64_t panel) const {
    alignas(64) float sums[kSegment * kColumns];
    float* to = sums;
    for (int64_t n = runs.begin; n < runs.end; ++n) {
      const Run& run = runs_[n];
      Taps taps = line;
      taps.pixels += run.pixel * by_pixel;
      taps.inside += n * p_.kernel_x;
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
      Taps some = taps;
      some.pixels += c;
      some.weights += c;
      some.channels -= c;
      if (some.channels >= together) {
        sum<windows, kVectors>(some, Full<1>(), sums + c);
      } else if (some.channels >= kLanes) {
        sum<windows, 1>(some, Full<1>(), sums + c);
      } else {
        sum<windows, 1>(some, Tail(some.channels), sums + c);
      }
      count = some.channels >= together ? together : kLanes;
    }
  }

  // Where an address comes from: else the compiler keeps the distances of all of them, more than there are registers.
  static ICPU_INLINE void hide(const float*& at) { asm("" : "+r"(at)); }

  template <int windows, int vectors, class Lanes>
  void sum(const Taps& taps, const Lanes lanes, float* sums) const {
    Reg<float> sum[windows][vectors] = {};
    for (int64_t y = 0; y < taps.lines; ++y) {
      const float* pixel = taps.pixels + y * taps.by_line;
      const Weight* weight = taps.weights + y * p_.kernel_x * kColumns;
      for (int64_t x = 0; x < p_.kernel_x; ++x, pixel += taps.by_tap, weight += kColumns) {
        const uint32_t inside = taps.inside[x];
        Reg<float> line[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) line[v] = load(weight + v * kLanes, Full<1>()).r[0];
        const float* at = pixel;
#pragma GCC unroll 8
        for (int i = 0; i < windows; ++i, at += taps.by_window) {
          if (i % 3 == 0 && i > 0) hide(at);
          if (!(inside >> i & 1)) continue;
#pragma GCC unroll 2
          for (int v = 0; v < vectors; ++v) sum[i][v] = fma_reg(load(at + v * kLanes, lanes).r[0], line[v], sum[i][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < windows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) std::memcpy(sums + i * kColumns + v * kLanes, &sum[i][v], sizeof(sum[i][v]));
    }
  }

  const Patches& p_;
  const Source* const images_;
  const Weight* const b_;
  const Epilogue<float>& epilogue_;
  int64_t panel_size_ = 0;
  Run* runs_ = nullptr;  // of a line
  uint32_t* inside_ = nullptr;  // of each, masks of its windows for each tap of a line
  int64_t many_ = 0;
};

// The convolution of images, each channel by itself.
template <class Micro>
[[gnu::noinline]] void convolve_channels(const Patches& patches, const typename Micro::Source* images, int64_t windows,
                                         int64_t columns, const typename Micro::Weight* b, int limit,
                                         const Epilogue<float>& epilogue) {
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
