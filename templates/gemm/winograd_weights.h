// The gradient of the weights of a convolution of 3 x 3 neighbouring pixels, by the tiles of winograd.h: what they are
// multiplied with there is linear in them, so the gradient is a sum over all tiles,
//
//   gradient of g = G^T (sum of (A e A^T) * (B^T d B)) G     d: the 4 x 4 pixels under a tile, e: the gradients of its 2 x 2
//                                                            results
//
// For each of the 16 places of the sum it is a matrix product, (output channels, tiles) by (tiles, channels): 16
// multiplications for each tile and pair of channels in place of 36.
//
// Where a gradient is infinite or not a number it is summed again window by window: such a pixel is in all of its tile.
//
// Preconditions: those of winograd.h; the gradients of results lie as (image, line, pixel, output channel), the last one
// next to each other, and output channels are a multiple of kStep, too. The micro kernel takes its operands as columns of
// kBlock rows and rows of kColumns columns (vectors.h, kPair 1).
#pragma once

#include "winograd.h"

namespace icpu::gemm {

// The gradients of a convolution's results. Strides in elements.
struct ResultGradients {
  const float* values;
  int64_t channels;
  int64_t by_image, by_line, by_pixel;

  const float* at(int64_t image, int64_t y, int64_t x) const {
    return values + image * by_image + y * by_line + x * by_pixel;
  }
};

// A e A^T of 2 x 2 vectors; A^T is that of transform_results.
inline ICPU_INLINE void spread_gradients(const Reg<float> (&e)[2][2], Reg<float> (&out)[4][4]) {
  const auto line = [](const Reg<float>& a, const Reg<float>& b, auto&& to) ICPU_INLINE {
    to(0, a);
    to(1, a + b);
    to(2, a - b);
    to(3, -b);
  };
  Reg<float> lines[4][2];
#pragma GCC unroll 2
  for (int x = 0; x < 2; ++x) line(e[0][x], e[1][x], [&](int y, const Reg<float>& v) ICPU_INLINE { lines[y][x] = v; });
#pragma GCC unroll 4
  for (int y = 0; y < 4; ++y) line(lines[y][0], lines[y][1], [&](int x, const Reg<float>& v) ICPU_INLINE { out[y][x] = v; });
}

// G^T u G of 4 x 4 vectors; G^T = (1 1/2 1/2 0; 0 1/2 -1/2 0; 0 1/2 1/2 1).
inline ICPU_INLINE void gather_weights(const Reg<float> (&u)[4][4], Reg<float> (&out)[3][3]) {
  const auto line = [](const Reg<float>& a, const Reg<float>& b, const Reg<float>& c, const Reg<float>& d, auto&& to)
                        ICPU_INLINE {
                          const Reg<float> half = (b + c) * 0.5f;
                          to(0, a + half);
                          to(1, (b - c) * 0.5f);
                          to(2, half + d);
                        };
  Reg<float> lines[3][4];
#pragma GCC unroll 4
  for (int x = 0; x < 4; ++x) {
    line(u[0][x], u[1][x], u[2][x], u[3][x], [&](int y, const Reg<float>& v) ICPU_INLINE { lines[y][x] = v; });
  }
#pragma GCC unroll 3
  for (int y = 0; y < 3; ++y) {
    const auto& l = lines[y];
    line(l[0], l[1], l[2], l[3], [&](int x, const Reg<float>& v) ICPU_INLINE { out[y][x] = v; });
  }
}

// How the sums of all threads lie: of each part of the tiles (panel of channels, place, output channel, column). Between
// places is a line, so that a row's sums do not share their places in the L1 cache.
template <class Micro>
struct TileSums {
  float* values;
  int64_t parts, panels, rows;

  static int64_t size(int64_t panels, int64_t rows) { return panels * kTilePlaces * by_place(rows); }
  static int64_t by_place(int64_t rows) { return rows * Micro::kColumns + kLine / int64_t(sizeof(float)); }
  float* at(int64_t part, int64_t place, int64_t panel, int64_t row) const {
    return values + ((part * panels + panel) * kTilePlaces + place) * by_place(rows) + row * Micro::kColumns;
  }

  // The gradients of a vector of weights, from column c of a panel on, of an output channel.
  ICPU_INLINE void weights(int64_t panel, int64_t row, int64_t c, Reg<float> (&out)[3][3]) const {
    Reg<float> u[4][4];
#pragma GCC unroll 16
    for (int place = 0; place < kTilePlaces; ++place) {
      Reg<float>& sum = u[place / 4][place % 4] = load_reg(at(0, place, panel, row) + c);
      for (int64_t part = 1; part < parts; ++part) sum += load_reg(at(part, place, panel, row) + c);
    }
    gather_weights(u, out);
  }
};

// The sums of some output channels, by blocks, and channels, by panels, over some tiles.
template <class Micro>
class WeightsOfThread {
  static constexpr int64_t kBlock = Micro::kBlock, kColumns = Micro::kColumns;
  // Output channels that are transformed at once, in the L1 cache: whole blocks and whole vectors.
  static constexpr int64_t kChannels = 96;
  static_assert(kChannels % kBlock == 0 && kChannels % kLanes == 0);
  // Tiles at once: with fewer, sums are read and written too often, also if the operands then leave the L2 cache.
  static constexpr int64_t kLeastTiles = 64;

 public:
  WeightsOfThread(const Patches& p, const float* images, const ResultGradients& gradients, const Tiles& tiles,
                  const TileSums<Micro>& sums)
      : p_(p), images_(images), gradients_(gradients), tiles_(tiles), sums_(sums) {}

  void sum(Range tiles, Range blocks, Range panels, int64_t part) {
    const int64_t rows = (blocks.end - blocks.begin) * kBlock, columns = (panels.end - panels.begin) * kColumns;
    const int64_t fitting = kPackedBytes / (kTilePlaces * (rows + columns) * int64_t(sizeof(float)));
    const int64_t most = std::clamp<int64_t>(fitting, kLeastTiles, Micro::kDepth);
    const int64_t at_once = equal_parts(tiles.end - tiles.begin, most);
    // A place begins a line after the end of the one before: else all sixteen would meet in a few lines of the L1 cache.
    constexpr int64_t line = kLine / int64_t(sizeof(float));
    row_block_ = round_up(at_once * kBlock, line);
    row_place_ = (blocks.end - blocks.begin) * row_block_ + line;
    column_panel_ = at_once * kColumns;
    column_place_ = (panels.end - panels.begin) * column_panel_ + line;
    rows_ = scratch<float, 16>(kTilePlaces * row_place_);
    columns_ = scratch<float, 17>(kTilePlaces * column_place_);
    zeros_ = scratch<float, 22>(std::max(p_.channels, gradients_.channels));
    std::fill_n(zeros_, std::max(p_.channels, gradients_.channels), 0.0f);
    for (int64_t first = tiles.begin; first < tiles.end; first += at_once) {
      const int64_t count = std::min(at_once, tiles.end - first);
      for (int64_t n = 0; n < count; ++n) {
        load_gradients(tiles_.place(first + n), n, blocks);
        load_pixels(tiles_.place(first + n), n, panels);
      }
      multiply(count, blocks, panels, part, first > tiles.begin);
    }
  }

 private:
  // Transforms and packs the gradients of tile n of those at hand.
  void load_gradients(const Tiles::Place& at, int64_t n, Range blocks) {
    const float* from[2][2];
    for (int64_t y = 0; y < 2; ++y) {
      for (int64_t x = 0; x < 2; ++x) {
        const bool inside = 2 * at.y + y < p_.down && 2 * at.x + x < p_.across;
        from[y][x] = inside ? gradients_.at(at.image, 2 * at.y + y, 2 * at.x + x) : zeros_;
      }
    }
    // The last vector may begin before the first channel.
    alignas(64) float values[kTilePlaces][kLanes + kChannels];
    const int64_t end = std::min(blocks.end * kBlock, gradients_.channels);
    for (int64_t channel = blocks.begin * kBlock; channel < end; channel += kChannels) {
      const int64_t count = std::min(kChannels, end - channel);
      for (int64_t c = 0; c < count; c += kLanes) {
        const int64_t start = std::min(channel + c, gradients_.channels - kLanes);
        transform_gradients(from, start, &values[0][kLanes + start - channel]);
      }
      float* out = rows_ + (channel / kBlock - blocks.begin) * row_block_ + n * kBlock;
      for (int64_t place = 0; place < kTilePlaces; ++place, out += row_place_) {
        for (int64_t c = 0; c < count; c += kBlock) {
          std::memcpy(out + c / kBlock * row_block_, &values[place][kLanes + c], kBlock * sizeof(float));
        }
      }
    }
  }

  static ICPU_INLINE void transform_gradients(const float* const (&from)[2][2], int64_t c, float* out) {
    Reg<float> e[2][2], spread[4][4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) e[n / 2][n % 2] = load_reg(from[n / 2][n % 2] + c);
    spread_gradients(e, spread);
#pragma GCC unroll 16
    for (int place = 0; place < kTilePlaces; ++place, out += kLanes + kChannels) {
      std::memcpy(out, &spread[place / 4][place % 4], sizeof(Reg<float>));
    }
  }

  // Transforms and packs the pixels under tile n of those at hand.
  void load_pixels(const Tiles::Place& at, int64_t n, Range panels) {
    const float* pixels[4][4];
    pixels_under(at, p_, images_, zeros_, pixels);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t first = panel * kColumns, width = std::min(kColumns, p_.channels - first);
      float* const out = columns_ + (panel - panels.begin) * column_panel_ + n * kColumns;
      for (int64_t c = 0; c < width; c += kLanes) {
        Reg<float> d[4][4];
#pragma GCC unroll 16
        for (int k = 0; k < 16; ++k) d[k / 4][k % 4] = load_reg(pixels[k / 4][k % 4] + first + c);
        transform_pixels(d);
#pragma GCC unroll 16
        for (int place = 0; place < kTilePlaces; ++place) {
          std::memcpy(out + place * column_place_ + c, &d[place / 4][place % 4], sizeof(Reg<float>));
        }
      }
    }
  }

  // Adds the products of `tiles` tiles to the sums, or sets these.
  void multiply(int64_t tiles, Range blocks, Range panels, int64_t part, bool accumulate) {
    typename Micro::Thread thread;
    const Epilogue<float> nobody = [](auto...) {};
    Finish<float> nothing(nobody);
    for (int64_t place = 0; place < kTilePlaces; ++place) {
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const float* const b = columns_ + place * column_place_ + (panel - panels.begin) * column_panel_;
        const int64_t width = std::min(kColumns, p_.channels - panel * kColumns);
        for (int64_t block = blocks.begin; block < blocks.end; ++block) {
          const int64_t row = block * kBlock, height = std::min(kBlock, gradients_.channels - row);
          const float* const a = rows_ + place * row_place_ + (block - blocks.begin) * row_block_;
          Meanwhile<float> meanwhile(Fetch(nullptr, 0, 0, 0), 1, nothing);
          float* const c = sums_.at(part, place, panel, row);
          Micro::narrow_block(thread, a, b, c, height, width, tiles, accumulate, meanwhile);
        }
      }
    }
  }

  const Patches& p_;
  const float* const images_;
  const ResultGradients& gradients_;
  const Tiles& tiles_;
  const TileSums<Micro>& sums_;
  int64_t row_block_ = 0, row_place_ = 0, column_panel_ = 0, column_place_ = 0;
  float *rows_ = nullptr, *columns_ = nullptr, *zeros_ = nullptr;
};

inline ICPU_INLINE bool are_finite(const Reg<float> (&weights)[3][3]) {
  Reg<float> zeros = {};  // or NaN
#pragma GCC unroll 9
  for (int n = 0; n < 9; ++n) zeros += weights[n / 3][n % 3] * 0.0f;
  return are_finite(&zeros[0], kLanes);
}

// The gradients of a vector of weights, from channel c on, of an output channel, window by window.
[[gnu::noinline]] inline void sum_windows(const Patches& p, const float* images, const ResultGradients& gradients,
                                          int64_t windows, int64_t row, int64_t c, Reg<float> (&out)[3][3]) {
  for (auto& line : out) std::fill_n(line, 3, Reg<float>{});
  for (int64_t image = 0, count = windows / (p.down * p.across); image < count; ++image) {
    for (int64_t y = 0; y < p.down; ++y) {
      for (int64_t x = 0; x < p.across; ++x) {
        const Reg<float> gradient = splat_reg(gradients.at(image, y, x)[row]);
        for (int64_t n = 0; n < 9; ++n) {
          const int64_t line = y + n / 3 - p.pad_y, pixel = x + n % 3 - p.pad_x;
          if (line < 0 || line >= p.height || pixel < 0 || pixel >= p.width) continue;
          out[n / 3][n % 3] += gradient * load_reg(images + image * p.by_image + line * p.by_line + pixel * p.by_pixel + c);
        }
      }
    }
  }
}

// How threads share the sums: parts of the tiles, each with sums of its own, and of a part a grid.
struct Shares {
  int64_t parts;
  Grid grid;
};

template <class Micro>
inline Shares shares_of(const Tiles& tiles, int64_t blocks, int64_t panels, int threads) {
  // Sums of all parts, which are added in the end: so many values at most; and tiles of a part that make up for them.
  constexpr int64_t kMostValues = 1 << 20, kLeastTiles = 128;
  const int64_t room = kMostValues / TileSums<Micro>::size(panels, blocks * Micro::kBlock);
  const int64_t parts = std::max<int64_t>(1, std::min({int64_t(threads), tiles.count() / kLeastTiles, room}));
  return {parts, grid_of(blocks, panels, threads / parts)};
}

// The gradient (output channel, y, x, channel), without gaps, of a convolution's weights, for `windows` windows.
template <class Micro>
[[gnu::noinline]] void gradient_of_weights(const Patches& patches, const float* images, const ResultGradients& gradients,
                                           int64_t windows, float* out, int limit) {
  const Tiles tiles(patches, windows);
  const int64_t rows = gradients.channels, blocks = ceil_div(rows, Micro::kBlock);
  const int64_t panels = ceil_div(patches.channels, Micro::kColumns);
  if (tiles.count() <= 0) {
    std::fill_n(out, rows * 9 * patches.channels, 0.0f);
    return;
  }
  const int threads = threads_for(kTilePlaces * tiles.count() * rows * patches.channels / 64, kThreadWork, limit);
  const auto [parts, grid] = shares_of<Micro>(tiles, blocks, panels, threads);
  const int64_t size = TileSums<Micro>::size(panels, rows);
  const TileSums<Micro> sums{scratch<float, 28>(parts * size), parts, panels, rows};
  parallel_for(parts * grid.rows * grid.columns, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t part = n / (grid.rows * grid.columns), row = n / grid.columns % grid.rows, column = n % grid.columns;
      WeightsOfThread<Micro>(patches, images, gradients, tiles, sums)
          .sum(share_of(tiles.count(), part, parts), share_of(blocks, row, grid.rows),
               share_of(panels, column, grid.columns), part);
    }
  });
  parallel_for_rows(panels, rows, 1, threads, [&](int64_t panel, int64_t begin, int64_t end) {
    const int64_t first = panel * Micro::kColumns, width = std::min<int64_t>(Micro::kColumns, patches.channels - first);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < width; c += kLanes) {
        Reg<float> weights[3][3];
        sums.weights(panel, row, c, weights);
        if (!are_finite(weights)) sum_windows(patches, images, gradients, windows, row, first + c, weights);
#pragma GCC unroll 9
        for (int n = 0; n < 9; ++n) {
          std::memcpy(out + (row * 9 + n) * patches.channels + first + c, &weights[n / 3][n % 3], sizeof(Reg<float>));
        }
      }
    }
  });
}

}  // namespace icpu::gemm
