// Convolutions of groups of channels: a group's results are sums over the taps of a window and over the group's channels
// only. Lanes are neighbouring results, of one group or of several.
//
// Preconditions: AVX2 and FMA, or AVX-512; those of patches.h, `outside` 0. B is packed as multiply.h says, in panels of
// Micro::kColumns results; its depth is (ky, kx, channel of the group).
//
// Lines of pixels are copied first, with zeros for what lies outside of the image, so that all windows of a line are summed
// alike, some at a time: a row of weights is read once for all of them. What a lane multiplies is a channel of its own group:
// a vector of them is one channel everywhere, or a blend of those of two groups, or neighbouring channels permuted.
#pragma once

#include "patches.h"

namespace icpu::gemm {

// How lanes multiply: each takes a value of 4 bytes, a float here, for kPair channels.
template <class T>
struct LanesByFma {
  using Source = T;
  using Weight = T;
  static constexpr int kPair = 1;

  template <class Lanes>
  static ICPU_INLINE Reg<float> line(const T* weights, const Lanes& lanes) {
    return load(weights, lanes).r[0];
  }
  static ICPU_INLINE Reg<float> dot(Reg<float> sum, Reg<float> value, Reg<float> line) { return fma_reg(value, line, sum); }

  // The values of some channels.
  template <class Lanes>
  static ICPU_INLINE void copy(const T* channels, const Lanes& lanes, float* values) {
    store(values, load(channels, lanes), lanes);
  }
};

// A row of the table of micro kernels, for one shape of groups: their channels and results; results whose lanes are summed
// together, of whole groups or a part of one, and how many times as many a panel has; pixels between neighbouring windows of
// a line. What registers hold (codegen/groups.py): vectors of results at once; taps of a line that are summed together, 1 or
// all of them if they and the windows are neighbours; windows at once, at least and at most.
template <class Lanes, int inputs, int outputs, int together, int times, int stride, int vectors, int taps, int least, int most>
struct Groups : Lanes {
  static constexpr int kInputs = inputs / Lanes::kPair;  // values of a pixel in a group
  static constexpr int kOutputs = outputs, kTogether = together, kStride = stride;
  static constexpr int kAtOnce = vectors, kTaps = taps, kLeast = least, kMost = most;
  static constexpr int kColumns = together * times;
  static constexpr bool kWhole = kColumns >= outputs;  // a panel is of whole groups
  static constexpr int kGroups = kWhole ? together / outputs : 1;  // whose results are summed together
  static constexpr int kPixel = kGroups * times * kInputs;  // values of a pixel that a panel needs
  static constexpr int kVectors = (together + kLanes - 1) / kLanes;
  static_assert(inputs % Lanes::kPair == 0 && (kWhole ? together % outputs : outputs % together) == 0);
  static_assert(taps == 1 || (stride == 1 && vectors == 1));
};
template <int... shape>
using GroupsF32 = Groups<LanesByFma<float>, shape...>;
template <int... shape>
using GroupsBf16 = Groups<LanesByFma<bf16>, shape...>;
template <int... shape>
using GroupsF16 = Groups<LanesByFma<f16>, shape...>;

// Of vector number `vector` of those that are summed together: the value of each lane's group, of a pixel.
template <class Micro, int vector>
struct ValuesOfVector {
  static constexpr int kFrom = vector * kLanes;
  static constexpr int kTo = std::min(kFrom + kLanes, Micro::kTogether) - 1;
  static constexpr int kFirst = Micro::kWhole ? kFrom / Micro::kOutputs : 0, kLast = Micro::kWhole ? kTo / Micro::kOutputs : 0;
  static_assert(kLast - kFirst < 2 || (kLast - kFirst + 1) * Micro::kInputs <= kLanes);

  // Where the lanes' values are among those of the vector's groups.
  static ICPU_INLINE Reg<int32_t> places(int64_t channel) {
    const auto of_groups = []<int... lane>(std::integer_sequence<int, lane...>) ICPU_INLINE {
      return Reg<int32_t>{((std::min(kFrom + lane, kTo) / Micro::kOutputs - kFirst) * Micro::kInputs)...};
    };
    return of_groups(std::make_integer_sequence<int, kLanes>{}) + splat_reg(int32_t(channel));
  }

  static ICPU_INLINE Reg<float> of(const float* pixel, int64_t channel, Reg<int32_t> places) {
    const float* const at = pixel + kFirst * Micro::kInputs;
    if constexpr (kLast == kFirst) {
      return splat_reg(at[channel]);
    } else if constexpr ((kLast - kFirst + 1) * Micro::kInputs > kLanes) {
      constexpr uint32_t first = (1u << (kLast * Micro::kOutputs - kFrom)) - 1;
      const Mask<1> of_first{{mask_of_bits(first)}};
      return select(of_first, splat<1>(at[channel]), splat<1>(at[Micro::kInputs + channel])).r[0];
    } else {
      return __builtin_shuffle(load(at, Full<1>()).r[0], places);
    }
  }
};

// Lines of windows of an image, for panels that need the same channels.
template <class Micro>
class GroupsOfThread {
  using Source = typename Micro::Source;
  using Weight = typename Micro::Weight;
  static constexpr int64_t kColumns = Micro::kColumns, kPair = Micro::kPair;
  static constexpr int64_t kCopyBytes = kPackedBytes / 2;  // of copied lines, which stay in a part of the L2 cache

 public:
  // Panels that need the same channels.
  static constexpr int64_t kPanels = Micro::kWhole ? 1 : Micro::kOutputs / kColumns;

  GroupsOfThread(const Patches& p, const Source* images, int64_t columns, const Weight* b, const Epilogue<float>& epilogue)
      : p_(p),
        images_(images),
        columns_(columns),
        b_(b),
        epilogue_(epilogue),
        reach_((p.kernel_y - 1) * p.dilation_y + 1),
        pixels_((p.across - 1) * p.stride_x + (p.kernel_x - 1) * p.dilation_x + 1),
        by_line_(pixels_ * Micro::kPixel),
        lines_at_once_(std::max<int64_t>(0, kCopyBytes / (by_line_ * int64_t(sizeof(float))) - reach_) / p.stride_y + 1) {
    // A vector may begin at the last pixel.
    copies_ = scratch<float, 29>(((lines_at_once_ - 1) * p.stride_y + reach_) * by_line_ + kLanes);
  }

  // Lines of windows are numbered down an image, then by images; slices are kPanels panels.
  void run(int64_t slice, Range lines) const {
    for (int64_t line = lines.begin, count; line < lines.end; line += count) {
      const int64_t y = line % p_.down;
      count = std::min({lines.end - line, p_.down - y, lines_at_once_});
      copy_lines(images_ + line / p_.down * p_.by_image, slice, y * p_.stride_y - p_.pad_y, (count - 1) * p_.stride_y + reach_);
      for (int64_t panel = slice * kPanels; panel < (slice + 1) * kPanels; ++panel) {
        for (int64_t n = 0; n < count; ++n) {
          sum_line(copies_ + n * p_.stride_y * by_line_, panel, (line + n) * p_.across);
        }
      }
    }
  }

 private:
  // The channels of a slice of `count` lines of an image, from number `first` on.
  void copy_lines(const Source* image, int64_t slice, int64_t first, int64_t count) const {
    constexpr int64_t channels = Micro::kPixel * kPair;
    const int64_t from = slice * channels, left = std::min(channels, p_.channels - from);
    float* to = copies_;
    for (int64_t y = first; y < first + count; ++y, to += by_line_) {
      if (y < 0 || y >= p_.height) {
        std::fill(to, to + by_line_, 0.0f);
      } else if (left == channels) {
        copy_line(image + y * p_.by_line + from, std::integral_constant<int64_t, channels>(), to);
      } else {
        copy_line(image + y * p_.by_line + from, left, to);
      }
    }
  }

  template <class Count>
  void copy_line(const Source* line, const Count channels, float* to) const {
    const int64_t begin = std::clamp<int64_t>(p_.pad_x, 0, pixels_);
    const int64_t end = std::clamp(p_.width + p_.pad_x, begin, pixels_);
    std::fill(to, to + begin * Micro::kPixel, 0.0f);
    const Source* pixel = line + (begin - p_.pad_x) * p_.by_pixel;
    for (int64_t x = begin; x < end; ++x, pixel += p_.by_pixel) copy_pixel(pixel, channels, to + x * Micro::kPixel);
    std::fill(to + end * Micro::kPixel, to + pixels_ * Micro::kPixel, 0.0f);
  }

  template <class Count>
  static ICPU_INLINE void copy_pixel(const Source* from, const Count channels, float* to) {
    const int64_t values = channels / kPair, whole = values / kLanes * kLanes;
    for (int64_t n = 0; n < whole; n += kLanes) Micro::copy(from + n * kPair, Full<1>(), to + n);
    if (whole < values) Micro::copy(from + whole * kPair, Tail(values - whole), to + whole);
  }

  // A line of windows, whose first row is so many, of a panel.
  void sum_line(const float* pixels, int64_t panel, int64_t row) const {
    const Weight* const weights = b_ + panel * p_.kernel_y * p_.kernel_x * Micro::kInputs * kPair * kColumns;
    const int64_t width = std::min(kColumns, columns_ - panel * kColumns);
    for (int64_t x = 0, count; x < p_.across; x += count) {
      count = equal_parts(p_.across - x, Micro::kMost);
      alignas(64) float sums[Micro::kMost * kColumns];
      const float* const first = pixels + x * Micro::kStride * Micro::kPixel;
      [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
        ((count == Micro::kLeast + n ? sum_panel<Micro::kLeast + n>(first, weights, width, sums) : void()), ...);
      }(std::make_integer_sequence<int, Micro::kMost - Micro::kLeast + 1>{});
      epilogue_(row + x, count, panel, width, sums);
    }
  }

  template <int windows>
  void sum_panel(const float* pixels, const Weight* weights, int64_t width, float* sums) const {
    for (int64_t column = 0; column < width; column += Micro::kTogether) {
      sum_vectors<windows, 0>(pixels, weights, sums);
      pixels += Micro::kGroups * Micro::kInputs;
      weights += Micro::kTogether * kPair;
      sums += Micro::kTogether;
    }
  }

  // Vectors from number `vector` on.
  template <int windows, int vector>
  void sum_vectors(const float* pixels, const Weight* weights, float* sums) const {
    if constexpr (vector < Micro::kVectors) {
      constexpr int left = Micro::kVectors - vector, some = int(equal_parts(left, Micro::kAtOnce));
      [&]<int... v>(std::integer_sequence<int, v...>) ICPU_INLINE {
        sum<windows, vector + v...>(pixels, weights + vector * kLanes * kPair, sums + vector * kLanes);
      }(std::make_integer_sequence<int, some>{});
      sum_vectors<windows, vector + some>(pixels, weights, sums);
    }
  }

  // What of a vector lies inside of those that are summed together.
  template <int vector>
  static ICPU_INLINE auto lanes_of() {
    constexpr int left = Micro::kTogether - vector * kLanes;
    if constexpr (left >= kLanes) {
      return Full<1>();
    } else {
      return Tail(left);
    }
  }

  template <int windows, int... vector>
  void sum(const float* pixels, const Weight* weights, float* sums) const {
    constexpr int vectors = sizeof...(vector), taps = Micro::kTaps, pixels_at_once = windows + taps - 1;
    constexpr int64_t row = kColumns * kPair;
    Reg<float> sum[windows][vectors] = {};
    for (int64_t y = 0; y < p_.kernel_y; ++y) {
      const float* tap = pixels + y * p_.dilation_y * by_line_;
      for (int64_t x = 0; x < p_.kernel_x; x += taps, tap += p_.dilation_x * Micro::kPixel) {
#pragma GCC unroll 1
        for (int64_t channel = 0; channel < Micro::kInputs; ++channel, weights += row) {
          const float* here = tap;
          asm("" : "+r"(here));  // else the compiler keeps pixels of all channels, for too few registers
          Reg<float> line[taps][vectors];
#pragma GCC unroll 8
          for (int t = 0; t < taps; ++t) {
            const Weight* const at = weights + t * Micro::kInputs * row;
            int v = 0;
            ((line[t][v] = Micro::line(at + v * kLanes * kPair, lanes_of<vector>()), ++v), ...);
          }
          const Reg<int32_t> places[] = {ValuesOfVector<Micro, vector>::places(channel)...};
#pragma GCC unroll 20
          for (int p = 0; p < pixels_at_once; ++p) {
            const float* const pixel = here + p * Micro::kStride * Micro::kPixel;
            int n = 0;
            const Reg<float> value[] = {ValuesOfVector<Micro, vector>::of(pixel, channel, places[n++])...};
#pragma GCC unroll 8
            for (int t = 0; t < taps; ++t) {
              if (p < t || p - t >= windows) continue;
#pragma GCC unroll 3
              for (int v = 0; v < vectors; ++v) sum[p - t][v] = Micro::dot(sum[p - t][v], value[v], line[t][v]);
            }
          }
        }
        weights += (taps - 1) * Micro::kInputs * row;
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < windows; ++i) {
      int v = 0;
      ((store(sums + i * kColumns + v * kLanes, Vec<float>{{sum[i][v]}}, lanes_of<vector>()), ++v), ...);
    }
  }

  const Patches& p_;
  const Source* const images_;
  const int64_t columns_;
  const Weight* const b_;
  const Epilogue<float>& epilogue_;
  const int64_t reach_, pixels_;  // lines and pixels of a line, from the first to the last tap
  const int64_t by_line_, lines_at_once_;  // copied
  float* copies_ = nullptr;
};

// The convolution of images, each group of channels by itself.
template <class Micro>
[[gnu::noinline]] void convolve_groups(const Patches& patches, const typename Micro::Source* images, int64_t windows,
                                       int64_t columns, const typename Micro::Weight* b, int limit,
                                       const Epilogue<float>& epilogue) {
  if (windows <= 0 || columns <= 0) return;
  using OfThread = GroupsOfThread<Micro>;
  const int64_t lines = windows / patches.across;
  const int64_t slices = ceil_div(columns, Micro::kColumns * OfThread::kPanels);
  const int64_t products = windows * columns * patches.kernel_y * patches.kernel_x * Micro::kInputs;
  parallel_work(slices * lines, 1, threads_for(products / 64, kThreadWork, limit), kPieces, [&](const Take& take) {
    const OfThread groups(patches, images, columns, b, epilogue);
    for (int64_t begin, end, count; take(begin, end);) {
      for (int64_t at = begin; at < end; at += count) {
        const int64_t line = at % lines;
        count = std::min(lines - line, end - at);
        groups.run(at / lines, {line, line + count});
      }
    }
  });
}

}  // namespace icpu::gemm
