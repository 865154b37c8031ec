// Convolutions whose windows overlap: nothing is copied for each window. The padded image is packed once, and what a window
// has in one of its places lies at the same distance for all windows: A is that image, shifted.
//
// Preconditions: those of patches.h, and a micro kernel with records. A window's depth comes in pieces, each with zeros up
// to a multiple of Micro::kStep: its pixels, or its lines, which for few channels have fewer zeros.
//
// A point is a place in the padded image where a piece can begin. Points are numbered along a line, then by lines, then by
// images; for each kStep values of a piece there is an array of records, one for each point. Neighbouring windows are
// neighbouring points, so the rows of a step of a block are neighbouring records, from the block's first point plus the
// shift of the step's piece on. Points where no window begins, at the end of lines and of images, are multiplied too, and
// their sums are thrown away. With strides, windows meet only every so manieth pixel: there is an image for each remainder.
#pragma once

#include "patches.h"

namespace icpu::gemm {

// One dimension of the windows.
struct Axis {
  int64_t outputs, size, taps, stride, pad, dilation;

  // Tap number t of the window at w is pixel (w + quotient(t)) * stride + remainder(t).
  int64_t quotient(int64_t tap) const { return floor_div(tap * dilation - pad, stride); }
  int64_t remainder(int64_t tap) const { return tap * dilation - pad - quotient(tap) * stride; }
  bool meets(int64_t pixel) const {
    for (int64_t t = 0; t < taps; ++t) {
      if (remainder(t) == pixel) return true;
    }
    return false;
  }
  int64_t first() const { return quotient(0); }
  int64_t last() const { return quotient(taps - 1); }

  // Points from one line, or image, to the next. Zeros after the one are those before the next, as far as no window
  // begins there.
  int64_t pitch() const {
    const int64_t more = last() - first(), before = stride == 1 ? -first() : 0, after = outputs + last() - size;
    return outputs + more - std::max<int64_t>(0, std::min({before, after, more}));
  }

 private:
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
};

// The images of a convolution, in the micro kernel's order: a thread's Rows, as Multiply wants them.
template <class Micro, class T>
class ShiftedImages {
  using Element = typename Micro::Element;

 public:
  // windows: how many in all. lines: whether a window's pieces are its lines.
  ShiftedImages(const Patches& p, const T* images, int64_t windows, bool lines)
      : p_(p),
        images_(images),
        lines_(lines),
        batch_(windows > 0 ? windows / (p.down * p.across) : 0),
        values_(lines ? p.kernel_x * p.channels : p.channels),
        groups_(ceil_div(values_, Micro::kStep)),
        y_{p.down, p.height, p.kernel_y, p.stride_y, p.pad_y, p.dilation_y},
        x_(lines ? Axis{p.across, p.across, 1, 1, 0, 1} : Axis{p.across, p.width, p.kernel_x, p.stride_x, p.pad_x, p.dilation_x}),
        line_(x_.pitch()),
        image_(y_.pitch() * line_) {}

  // Of the product: a row for each point from the first window to the last one.
  Sizes sizes(int64_t columns) const {
    const int64_t rows = batch_ == 0 ? 0 : (batch_ - 1) * image_ + (p_.down - 1) * line_ + p_.across;
    return {rows, columns, steps() * Micro::kStep};
  }

  // As many blocks as leave the packed image in the L2 cache, but so many that at most half of it is packed again for the
  // next ones: windows with a large dilation, or of long lines, reach far beyond their block.
  Cut cut(int64_t blocks, int64_t height, int64_t) const {
    const int64_t points = kPackedBytes / (remainders() * groups_ * Micro::kStep * int64_t(sizeof(Element)));
    const int64_t fitting = std::min((points - span()) / height, kMostBlocks);
    return {equal_parts(blocks, std::max({fitting, ceil_div(span(), height), int64_t(1)})), steps() * Micro::kStep};
  }

  // Packs what the rows of a piece need.
  void load(const Piece& piece) {
    height_ = piece.height;
    points_ = (piece.blocks - 1) * height_ + Micro::kBlock + span();
    packed_ = scratch<Element, 20>(remainders() * groups_ * points_ * Micro::kStep);
    offsets_ = scratch<int64_t, 21>(steps());
    int64_t* offset = offsets_;
    for (int64_t ky = 0; ky < y_.taps; ++ky) {
      for (int64_t kx = 0; kx < x_.taps; ++kx) {
        const int64_t shift = (y_.quotient(ky) - y_.first()) * line_ + x_.quotient(kx) - x_.first();
        const int64_t start = (y_.remainder(ky) * x_.stride + x_.remainder(kx)) * groups_;
        for (int64_t g = 0; g < groups_; ++g) *offset++ = ((start + g) * points_ + shift) * Micro::kStep;
      }
    }
    for (int64_t y = 0; y < y_.stride; ++y) {
      for (int64_t x = 0; x < x_.stride; ++x) {
        if (y_.meets(y) && x_.meets(x)) pack(piece.row, y, x);
      }
    }
  }

  // Block n of the piece, from depth k of it on.
  Shifted<Element> block(int64_t n, int64_t k) const {
    return {packed_ + n * height_ * Micro::kStep, offsets_ + k / Micro::kStep};
  }

  // Calls epilogue for those rows of a block that are windows.
  template <class Sum>
  void finish(const Epilogue<Sum>& epilogue, int64_t row, int64_t height, int64_t panel, int64_t width, const Sum* c) const {
    while (height > 0) {
      const int64_t line = row / line_, x = row % line_, lines = image_ / line_, image = line / lines, y = line % lines;
      const int64_t points = std::min(height, line_ - x), windows = std::min(points, p_.across - x);
      if (y < p_.down && windows > 0) epilogue((image * p_.down + y) * p_.across + x, windows, panel, width, c);
      row += points;
      height -= points;
      c += points * Micro::kColumns;
    }
  }

 private:
  int64_t steps() const { return y_.taps * x_.taps * groups_; }
  int64_t remainders() const { return y_.stride * x_.stride; }
  int64_t span() const { return (y_.last() - y_.first()) * line_ + x_.last() - x_.first(); }

  // The points from `first` on of every stride-th pixel, from pixel (from_y, from_x) on.
  void pack(int64_t first, int64_t from_y, int64_t from_x) {
    Element* const out = packed_ + (from_y * x_.stride + from_x) * groups_ * points_ * Micro::kStep;
    for (int64_t n = 0; n < points_;) {
      const int64_t line = (first + n) / line_, x = (first + n) % line_, lines = image_ / line_, image = line / lines;
      const int64_t count = std::min(points_ - n, line_ - x), y = (line % lines + y_.first()) * y_.stride + from_y;
      if (image >= batch_ || y < 0 || y >= p_.height) {
        fill(n, count, out);
      } else if (const T* const pixels = images_ + image * p_.by_image + y * p_.by_line; lines_) {
        pack_windows(pixels, x, count, n, out);
      } else {
        pack_pixels(pixels, x + x_.first(), count, from_x, n, out);
      }
      n += count;
    }
  }

  // Pixels of a line from pixel number x of those with this remainder on, and what lies beside the line.
  void pack_pixels(const T* line, int64_t x, int64_t count, int64_t from_x, int64_t n, Element* out) const {
    const int64_t before = std::clamp<int64_t>(-x, 0, count);
    const int64_t end = std::clamp<int64_t>(ceil_div(p_.width - from_x, x_.stride) - x, before, count);
    fill(n, before, out);
    for (int64_t i = before; i < end; ++i) record(line + ((x + i) * x_.stride + from_x) * p_.by_pixel, n + i, out);
    fill(n + end, count - end, out);
  }

  // Lines of windows, from the window at x on.
  void pack_windows(const T* line, int64_t x, int64_t count, int64_t n, Element* out) const {
    T* const copy = scratch<T, 22>(values_);
    T outside;
    std::memset(static_cast<void*>(&outside), p_.outside, sizeof(T));
    const bool together = p_.dilation_x == 1 && p_.by_pixel == p_.channels;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t pixel = (x + i) * p_.stride_x - p_.pad_x;
      if (together && pixel >= 0 && pixel + p_.kernel_x <= p_.width) {
        record(line + pixel * p_.by_pixel, n + i, out);
        continue;
      }
      for (int64_t kx = 0; kx < p_.kernel_x; ++kx) {
        const int64_t at = pixel + kx * p_.dilation_x;
        for (int64_t c = 0; c < p_.channels; ++c) {
          copy[kx * p_.channels + c] = at >= 0 && at < p_.width ? line[at * p_.by_pixel + c] : outside;
        }
      }
      record(copy, n + i, out);
    }
  }

  void record(const T* values, int64_t n, Element* out) const {
    for (int64_t g = 0; g < groups_; ++g) {
      const int64_t count = std::min<int64_t>(Micro::kStep, values_ - g * Micro::kStep);
      Micro::record(values + g * Micro::kStep, count, out + (g * points_ + n) * Micro::kStep);
    }
  }

  void fill(int64_t n, int64_t count, Element* out) const {
    for (int64_t g = 0; g < groups_; ++g) {
      std::memset(static_cast<void*>(out + (g * points_ + n) * Micro::kStep), p_.outside,
                  static_cast<size_t>(count * Micro::kStep) * sizeof(Element));
    }
  }

  const Patches p_;
  const T* const images_;
  const bool lines_;
  const int64_t batch_, values_, groups_;
  const Axis y_, x_;
  const int64_t line_, image_;  // points from one line, and from one image, to the next
  int64_t height_ = 0, points_ = 0;
  Element* packed_ = nullptr;
  int64_t* offsets_ = nullptr;
};

// The convolution of images. windows, lines: as above.
template <class Micro, class T>
[[gnu::noinline]] void convolve(const Patches& patches, const T* images, int64_t windows, bool lines, int64_t columns,
                                const typename Micro::Weight* b, int limit, const Epilogue<typename Micro::Sum>& epilogue) {
  using Sum = typename Micro::Sum;
  const ShiftedImages<Micro, T> whole(patches, images, windows, lines);
  multiply_blocks<Micro>(
      whole.sizes(columns), b, limit, [&] { return whole; },
      Epilogue<Sum>([&](int64_t row, int64_t height, int64_t panel, int64_t width, const Sum* c) {
        whole.finish(epilogue, row, height, panel, width, c);
      }));
}

}  // namespace icpu::gemm
