// The windows of images as rows of a matrix, packed for a micro kernel.
//
// Preconditions: images are (batch, height, width, channels) with neighbouring channels next to each other; strides and
// sizes in elements. Row number (n * down + y) * across + x holds the window at (y, x) of image n, in the order (ky, kx,
// channel); what lies outside the image has the byte `outside` in all of its bytes: 0 in floats.
#pragma once

#include "multiply.h"

namespace icpu::gemm {

// The first and the last n of `count` bytes, which meet or overlap.
template <int n>
inline ICPU_INLINE void copy_ends(char* to, const char* from, int64_t count) {
  struct {
    char bytes[n];
  } first, last;
  std::memcpy(&first, from, n);
  std::memcpy(&last, from + count - n, n);
  std::memcpy(to, &first, n);
  std::memcpy(to + count - n, &last, n);
}

// A line of a window is a few bytes only: a call takes longer than to copy them.
inline ICPU_INLINE void copy_bytes(void* out, const void* in, int64_t count) {
  char* const to = static_cast<char*>(out);
  const char* const from = static_cast<const char*>(in);
  if (count < 8 || count > 64) {
    std::memcpy(to, from, size_t(count));
  } else if (count >= 32) {
    copy_ends<32>(to, from, count);
  } else if (count >= 16) {
    copy_ends<16>(to, from, count);
  } else {
    copy_ends<8>(to, from, count);
  }
}

struct Patches {
  int64_t height, width, channels;
  int64_t down, across;  // windows of an image
  int64_t by_image, by_line, by_pixel;
  int64_t kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  int outside;

  // `rows` rows from `first` on, `depth` values of each from `from` on.
  template <class Micro, class T>
  [[gnu::noinline]] void pack(const T* images, int64_t first, int64_t rows, int64_t from, int64_t depth,
                              typename Micro::Element* out) const {
    const auto each = [&](const auto& row_of) {
      const T* image = images + first / (down * across) * by_image;
      int64_t y = first / across % down, x = first % across;
      for (int64_t r = 0; r < rows; ++r) {
        window(image, y * stride_y - pad_y, x * stride_x - pad_x, row_of(r));
        if (++x < across) continue;
        x = 0;
        if (++y < down) continue;
        y = 0;
        image += by_image;
      }
    };
    if constexpr (requires { &Micro::copy; }) {
      const int64_t size = round_up(depth, Micro::kStep) * Micro::kBlock;
      std::memset(static_cast<void*>(out), outside, static_cast<size_t>(size) * sizeof(*out));
      each([&](int64_t r) { return Record<Micro>{from, from + depth, r, out}; });
    } else {  // as rows first, which pack() turns over with whole vectors
      T* const lines = scratch<T, 23>(rows * depth);
      std::memset(static_cast<void*>(lines), outside, static_cast<size_t>(rows * depth) * sizeof(T));
      each([&](int64_t r) { return Line<T>{from, from + depth, lines + r * depth}; });
      Micro::pack(lines, depth, rows, depth, out);
    }
  }

 private:
  // A row of a row-major matrix: of the window, the depths from `from` to `to`.
  template <class T>
  struct Line {
    int64_t from, to;
    T* out;

    // Neighbouring values for the depths from k on.
    ICPU_INLINE void copy(const T* values, int64_t count, int64_t k) const {
      const int64_t start = std::max(k, from), stop = std::min(k + count, to);
      if (start < stop) copy_bytes(out + (start - from), values + (start - k), (stop - start) * int64_t(sizeof(T)));
    }
  };

  // Row number r of the block, of which the depths from `from` to `to` are wanted.
  template <class Micro>
  struct Record {
    int64_t from, to, r;
    typename Micro::Element* out;

    // Neighbouring values for the depths from k on.
    template <class T>
    ICPU_INLINE void copy(const T* values, int64_t count, int64_t k) const {
      const int64_t start = std::max(k, from), stop = std::min(k + count, to);
      if (start < stop) Micro::copy(values + (start - k), stop - start, start - from, r, out);
    }
  };

  template <class Row, class T>
  void window(const T* image, int64_t y, int64_t x, const Row& row) const {
    for (int64_t ky = 0; ky < kernel_y; ++ky) {
      const int64_t line = y + ky * dilation_y;
      if (line < 0 || line >= height) continue;
      const T* const start = image + line * by_line;
      const int64_t k = ky * kernel_x * channels;
      if (dilation_x == 1 && by_pixel == channels) {  // the pixels of a line of the window lie side by side
        const int64_t from = std::max<int64_t>(0, -x), to = std::min<int64_t>(kernel_x, width - x);
        if (from < to) row.copy(start + (x + from) * by_pixel, (to - from) * channels, k + from * channels);
        continue;
      }
      for (int64_t kx = 0; kx < kernel_x; ++kx) {
        const int64_t column = x + kx * dilation_x;
        if (column < 0 || column >= width) continue;
        row.copy(start + column * by_pixel, channels, k + kx * channels);
      }
    }
  }
};

}  // namespace icpu::gemm
