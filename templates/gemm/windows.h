// Convolutions over few channels: windows are multiplied where they lie. The rows of a block are neighbouring windows of a
// line, and their depth comes in parts, a line of the image for each; only those that reach over its end are copied.
//
// Preconditions: those of patches.h and in_place.h; `outside` 0, dilation_x 1. The depth is in the order (ky, kx, channel),
// zeros after each ky up to a whole group of pairs.
//
// Lines of windows are as long as whole blocks, of which a line has equally high ones: the sums after its end are thrown away.
#pragma once

#include "in_place.h"
#include "patches.h"

namespace icpu::gemm {

template <class Micro>
class WindowsInPlace {
  using T = typename Micro::Source;
  using Part = typename Parts<T>::Part;
  using Sum = typename Micro::Sum;
  static_assert(Micro::kRows == 1);

 public:
  // windows: how many in all.
  WindowsInPlace(const Patches& p, const T* images, int64_t windows)
      : p_(p),
        images_(images),
        lines_(p.across > 0 ? windows / p.across : 0),
        height_(equal_parts(p.across, Micro::kBlock)),
        line_(round_up(p.across, height_)),
        pixels_((height_ - 1) * p.stride_x + p.kernel_x) {}

  int64_t rows() const { return lines_ * line_; }

  // The pixels under a block that are not under the blocks above it, twice: lines above stay in the cache, too.
  PartsOfBlock parts() const {
    const int64_t bytes = p_.channels * int64_t(sizeof(T)), pixels = height_ * p_.stride_y * p_.stride_x;
    return {p_.kernel_y, p_.kernel_x * p_.channels, 2 * pixels * bytes, height_};
  }

  // The parts of blocks from `row` on.
  void find(int64_t row, int64_t blocks, Part* to) const {
    T* copies = scratch<T, 21>(blocks * p_.kernel_y * pixels_ * p_.channels);
    int64_t line = row / line_, window = row - line * line_, image = line / p_.down, y = line - image * p_.down;
    for (int64_t n = 0; n < blocks; ++n, to += p_.kernel_y) {
      find(images_ + image * p_.by_image, y, window, copies, to);
      window += height_;
      if (window < line_) continue;
      window = 0;
      if (++y < p_.down) continue;
      y = 0;
      ++image;
    }
  }

  // Calls epilogue for those rows of a block that are windows.
  void finish(const Epilogue<Sum>& epilogue, int64_t row, int64_t height, int64_t panel, int64_t width, const Sum* c) const {
    const int64_t line = row / line_, window = row - line * line_, windows = std::min(height, p_.across - window);
    if (windows > 0) epilogue(line * p_.across + window, windows, panel, width, c);
  }

 private:
  // The parts of the block at a window of line y.
  void find(const T* image, int64_t y, int64_t window, T*& copies, Part* to) const {
    const int64_t first = window * p_.stride_x - p_.pad_x;  // pixel
    const bool inside = p_.by_pixel == p_.channels && first >= 0 && first + pixels_ <= p_.width;
    for (int64_t ky = 0; ky < p_.kernel_y; ++ky) {
      const int64_t at = y * p_.stride_y - p_.pad_y + ky * p_.dilation_y;
      const T* const line = at >= 0 && at < p_.height ? image + at * p_.by_line : nullptr;
      to[ky] = {copies, p_.stride_x * p_.channels};
      if (inside && line != nullptr) {
        to[ky].at = line + first * p_.channels;
      } else {
        copies = copy(line, first, copies);
      }
    }
  }

  // The pixels of a block from number `first` of a line on, side by side; zeros where there is none, or no line. Returns
  // where they end.
  T* copy(const T* line, int64_t first, T* out) const {
    T* const end = out + pixels_ * p_.channels;
    int64_t from = 0, to = 0;
    if (line != nullptr) {
      from = std::clamp<int64_t>(-first, 0, pixels_);
      to = std::clamp(p_.width - first, from, pixels_);
    }
    std::fill(out, out + from * p_.channels, T{});
    if (p_.by_pixel == p_.channels && from < to) {
      const int64_t bytes = (to - from) * p_.channels * int64_t(sizeof(T));
      copy_bytes(out + from * p_.channels, line + (first + from) * p_.channels, bytes);
    } else {
      for (int64_t n = from; n < to; ++n) std::copy_n(line + (first + n) * p_.by_pixel, p_.channels, out + n * p_.channels);
    }
    std::fill(out + to * p_.channels, end, T{});
    return end;
  }

  const Patches& p_;
  const T* const images_;
  const int64_t lines_, height_, line_;  // of windows, of their blocks, and how long lines are
  const int64_t pixels_;  // of a line, under the windows of a block
};

// The convolution of images.
template <class Micro>
inline void convolve_windows(const Patches& patches, const typename Micro::Source* images, int64_t windows, int64_t columns,
                             const typename Micro::Weight* b, int limit, const Epilogue<typename Micro::Sum>& epilogue) {
  using T = typename Micro::Source;
  using Sum = typename Micro::Sum;
  const WindowsInPlace<Micro> whole(patches, images, windows);
  const auto find = [&](int64_t row, int64_t blocks, int64_t, typename Parts<T>::Part* to) { whole.find(row, blocks, to); };
  const auto finish = [&](int64_t row, int64_t height, int64_t panel, int64_t width, const Sum* c) {
    whole.finish(epilogue, row, height, panel, width, c);
  };
  multiply_in_place<Micro>(whole.rows(), columns, whole.parts(), Find<T>(find), b, limit, Epilogue<Sum>(finish));
}

}  // namespace icpu::gemm
