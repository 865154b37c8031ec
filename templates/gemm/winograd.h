// Convolutions of windows of 3 x 3 neighbouring pixels by tiles of 2 x 2 windows, with 16 products where there would be 36:
// F(2 x 2, 3 x 3) of Winograd's (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016).
//
//   results of a tile = A^T ((G g G^T) * (B^T d B)) A      g: the weights of a window, d: the 4 x 4 pixels under a tile
//
// For each of the 16 places of the product in the middle, it is a matrix product: of all tiles by all channels, with the
// channels by columns that the weights are there.
//
// A pixel is in sums and differences of all the tile. One that is infinite or not a number makes all four results so: such
// tiles are multiplied again window by window, with weights that are computed back from G g G^T, to a unit or two of the
// last place. Weights whose G g G^T is not finite, as of infinite ones, are packed as they are, in the first nine places, with
// a NaN as their mark in one that is in all four results: all their tiles are multiplied window by window. Of finite pixels
// the largest under a tile decides how many digits the others keep, and likewise of weights.
//
// Preconditions: those of patches.h, for floats; strides and dilations of 1, windows of 3 x 3 pixels; channels are a
// multiple of kStep. B is packed as multiply.h says, its depth one place (y, x) of G g G^T after the other, each with its
// channels.
#pragma once

#include "patches.h"

namespace icpu::gemm {

inline constexpr int64_t kTilePlaces = 16;
inline constexpr int64_t kMarkPlace = 9;

// Where tiles lie: numbered along a line of tiles, then by lines, then by images.
class Tiles {
 public:
  struct Place {
    int64_t image, y, x;
  };

  Tiles(const Patches& p, int64_t windows)
      : down_(ceil_div(p.down, 2)),
        across_(ceil_div(p.across, 2)),
        count_(windows <= 0 ? 0 : windows / (p.down * p.across) * down_ * across_) {}

  int64_t count() const { return count_; }
  int64_t across() const { return across_; }
  Place place(int64_t tile) const {
    const int64_t line = tile / across_;
    return {line / down_, line % down_, tile % across_};
  }

 private:
  int64_t down_, across_, count_;
};

// The pixels under a tile: where the channels of each are, `zeros` for those outside of the image.
inline void pixels_under(const Tiles::Place& at, const Patches& p, const float* images, const float* zeros,
                         const float* (&pixels)[4][4]) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      const int64_t y = 2 * at.y + i - p.pad_y, x = 2 * at.x + j - p.pad_x;
      const bool inside = y >= 0 && y < p.height && x >= 0 && x < p.width;
      pixels[i][j] = inside ? images + at.image * p.by_image + y * p.by_line + x * p.by_pixel : zeros;
    }
  }
}

inline bool are_finite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

// B^T d B of 4 x 4 vectors, in place; B^T = (1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1).
inline ICPU_INLINE void transform_pixels(Reg<float> (&d)[4][4]) {
  const auto line = [](Reg<float>& a, Reg<float>& b, Reg<float>& c, Reg<float>& e) ICPU_INLINE {
    const Reg<float> sum = b + c, difference = c - b;
    a -= c;
    e = b - e;
    b = sum;
    c = difference;
  };
#pragma GCC unroll 4
  for (int x = 0; x < 4; ++x) line(d[0][x], d[1][x], d[2][x], d[3][x]);
#pragma GCC unroll 4
  for (int y = 0; y < 4; ++y) line(d[y][0], d[y][1], d[y][2], d[y][3]);
}

// A^T m A of 4 x 4 vectors; A^T = (1 1 1 0; 0 1 -1 -1).
inline ICPU_INLINE void transform_results(const Reg<float> (&m)[4][4], Reg<float> (&out)[2][2]) {
  Reg<float> lines[2][4];
#pragma GCC unroll 4
  for (int x = 0; x < 4; ++x) {
    lines[0][x] = m[0][x] + m[1][x] + m[2][x];
    lines[1][x] = m[1][x] - m[2][x] - m[3][x];
  }
#pragma GCC unroll 2
  for (int y = 0; y < 2; ++y) {
    out[y][0] = lines[y][0] + lines[y][1] + lines[y][2];
    out[y][1] = lines[y][1] - lines[y][2] - lines[y][3];
  }
}

// What a thread does with its pieces: some blocks of tiles, and some panels.
template <class Micro>
class TilesOfThread {
  using Weight = typename Micro::Weight;
  static constexpr int64_t kBlock = Micro::kBlock, kColumns = Micro::kColumns;
  // Channels that are transformed at once, so that what becomes of a block's tiles stays in the L1 cache.
  static constexpr int64_t kChannels = 4 * Micro::kStep;

 public:
  TilesOfThread(const Patches& p, const float* images, const Tiles& tiles, const Blocks& all, const Weight* b, int64_t columns,
                const Epilogue<float>& epilogue)
      : p_(p), images_(images), tiles_(tiles), all_(all), b_(b), columns_(columns), epilogue_(epilogue) {}

  // at_once: blocks of a group; stays: whether the weights do, in the L2 cache, once they are read.
  void multiply(const Pieces& pieces, int64_t at_once, bool stays) {
    packed_ = scratch<float, 16>(kTilePlaces * at_once * kBlock * p_.channels);
    sums_ = scratch<float, 17>(kTilePlaces * at_once * kBlock * kColumns);
    results_ = scratch<float, 21>(4 * at_once * kBlock * kColumns);
    zeros_ = scratch<float, 22>(p_.channels);
    std::fill_n(zeros_, p_.channels, 0.0f);
    const int64_t panel_size = kTilePlaces * p_.channels * kColumns;
    for (int64_t first = pieces.blocks.begin; first < pieces.blocks.end; first += at_once) {
      load(first, std::min(at_once, pieces.blocks.end - first));
      const bool fetches = !stays || (pieces.first && first == pieces.blocks.begin);
      for (int64_t panel = pieces.panels.begin; panel < pieces.panels.end; ++panel) {
        const Weight* const weights = b_ + panel * panel_size;
        const int64_t width = std::min(kColumns, columns_ - panel * kColumns);
        multiply_panel(weights, width, fetches);
        finish(panel, width, weights);
      }
    }
  }

 private:
  int64_t rows_of(int64_t n) const { return std::min(all_.height, tiles_.count() - first_ - n * all_.height); }

  void find(const Tiles::Place& at, const float* (&pixels)[4][4]) const { pixels_under(at, p_, images_, zeros_, pixels); }

  // Transforms and packs the pixels of some blocks, unless they are: other panels may have met them before.
  void load(int64_t first, int64_t count) {
    if (first * all_.height == first_ && count == count_) return;
    first_ = first * all_.height;
    count_ = count;
    for (int64_t n = 0; n < count_; ++n) load_block(n);
  }

  void load_block(int64_t n) {
    const int64_t rows = rows_of(n);
    const float* pixels[kBlock][4][4];
    for (int64_t r = 0; r < rows; ++r) find(tiles_.place(first_ + n * all_.height + r), pixels[r]);
    float* const lines = scratch<float, 20>(kTilePlaces * kBlock * kChannels);
    for (int64_t from = 0; from < p_.channels; from += kChannels) {
      const int64_t channels = std::min(kChannels, p_.channels - from);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < channels; c += kLanes) transform(pixels[r], from + c, lines + r * kChannels + c);
      }
      for (int64_t place = 0; place < kTilePlaces; ++place) {
        float* const out = packed_ + ((place * count_ + n) * p_.channels + from) * kBlock;
        Micro::pack(lines + place * kBlock * kChannels, kChannels, rows, channels, out);
      }
    }
  }

  // A vector of channels, from channel c on: for each place of a tile, kBlock lines of kChannels values.
  static ICPU_INLINE void transform(const float* const (&pixels)[4][4], int64_t c, float* out) {
    Reg<float> d[4][4];
#pragma GCC unroll 4
    for (int y = 0; y < 4; ++y) {
#pragma GCC unroll 4
      for (int x = 0; x < 4; ++x) d[y][x] = load_reg(pixels[y][x] + c);
    }
    transform_pixels(d);
#pragma GCC unroll 4
    for (int y = 0; y < 4; ++y) {
#pragma GCC unroll 4
      for (int x = 0; x < 4; ++x, out += kBlock * kChannels) std::memcpy(out, &d[y][x], sizeof(d[y][x]));
    }
  }

  // `width` columns of a panel and all blocks, at every place. fetches: whether B is not in the L2 cache yet: then each block
  // asks for its share of the part that follows.
  void multiply_panel(const Weight* b, int64_t width, bool fetches) {
    typename Micro::Thread thread;
    Finish<float> nothing(epilogue_);
    const int64_t part = round_up(equal_parts(p_.channels, Micro::kDepth), Micro::kStep);
    for (int64_t place = 0; place < kTilePlaces; ++place) {
      for (int64_t k = 0; k < p_.channels; k += part) {
        const int64_t depth = std::min(part, p_.channels - k), size = depth * kColumns;
        const int64_t lines = fetches ? ceil_div(size * int64_t(sizeof(Weight)), kLine) : 0, share = ceil_div(lines, count_);
        for (int64_t n = 0; n < count_; ++n) {
          const Fetch fetch(b + size, lines, std::min(n * share, lines), std::min((n + 1) * share, lines));
          const float* const a = packed_ + ((place * count_ + n) * p_.channels + k) * kBlock;
          Meanwhile<float> meanwhile(fetch, Micro::kOverlaps ? depth / Micro::kStep : 1, nothing);
          if constexpr (requires { Micro::kNarrows; }) {
            Micro::narrow_block(thread, a, b, sums_of(place, n), rows_of(n), width, depth, k > 0, meanwhile);
          } else {
            Micro::block(thread, a, b, sums_of(place, n), rows_of(n), depth, k > 0, meanwhile);
          }
        }
        b += size;
      }
    }
  }

  float* sums_of(int64_t place, int64_t n) const { return sums_ + (place * count_ + n) * kBlock * kColumns; }

  // Tiles that follow each other in a line of tiles are two lines of windows.
  void finish(int64_t panel, int64_t width, const Weight* weights) {
    const int64_t end = std::min(first_ + count_ * all_.height, tiles_.count());
    for (int64_t tile = first_, run; tile < end; tile += run) {
      const Tiles::Place at = tiles_.place(tile);
      run = std::min(end - tile, tiles_.across() - at.x);
      float* const lines[2] = {results_, results_ + 2 * run * kColumns};
      Reg<float> zeros = {};  // or NaN
      for (int64_t i = 0; i < run; ++i) {
        results_of(tile + i - first_, width, lines[0] + 2 * i * kColumns, lines[1] + 2 * i * kColumns, zeros);
      }
      if (!are_finite(&zeros[0], kLanes)) correct(at, run, weights, width, lines[0], lines[1]);
      for (int64_t y = 2 * at.y; y < std::min(2 * at.y + 2, p_.down); ++y) {
        const int64_t row = (at.image * p_.down + y) * p_.across + 2 * at.x;
        epilogue_(row, std::min(2 * run, p_.across - 2 * at.x), panel, width, lines[y - 2 * at.y]);
      }
    }
  }

  // The results of a tile: two above, two below. zeros: to which they are added, times 0.
  void results_of(int64_t tile, int64_t width, float* above, float* below, Reg<float>& zeros) const {
    const int64_t n = tile / all_.height, r = tile % all_.height;
    for (int64_t c = 0; c < width; c += kLanes) {
      Reg<float> m[4][4], out[2][2];
#pragma GCC unroll 16
      for (int place = 0; place < kTilePlaces; ++place) {
        m[place / 4][place % 4] = load_reg(sums_of(place, n) + r * kColumns + c);
      }
      transform_results(m, out);
      zeros += ((out[0][0] + out[0][1]) + (out[1][0] + out[1][1])) * 0.0f;
#pragma GCC unroll 2
      for (int x = 0; x < 2; ++x) {
        std::memcpy(above + x * kColumns + c, &out[0][x], sizeof(out[0][x]));
        std::memcpy(below + x * kColumns + c, &out[1][x], sizeof(out[1][x]));
      }
    }
  }

  // Multiplies again what is not finite, of tiles that follow each other.
  [[gnu::noinline]] void correct(const Tiles::Place& at, int64_t tiles, const Weight* weights, int64_t width, float* above,
                                 float* below) const {
    for (int64_t i = 0; i < tiles; ++i, above += 2 * kColumns, below += 2 * kColumns) {
      const bool left = are_finite(above, width) && are_finite(below, width);
      if (left && are_finite(above + kColumns, width) && are_finite(below + kColumns, width)) continue;
      results_by_windows({at.image, at.y, at.x + i}, weights, width, above, below);
    }
  }

  // The same as results_of, from the pixels; weights: of the panel.
  void results_by_windows(const Tiles::Place& at, const Weight* weights, int64_t width, float* above, float* below) const {
    const float* pixels[4][4];
    find(at, pixels);
    for (int64_t column = 0; column < width; column += kLanes) {
      Reg<float> sums[2][2] = {};
      for (int64_t c = 0; c < p_.channels; ++c) {
        Reg<float> taps[3][3];
        weights_of(weights + c * kColumns + column, taps);
        for (int64_t y = 0; y < 2; ++y) {
          for (int64_t x = 0; x < 2; ++x) add_window(pixels, y, x, c, taps, sums[y][x]);
        }
      }
      for (int64_t x = 0; x < 2; ++x) {
        std::memcpy(above + x * kColumns + column, &sums[0][x], sizeof(sums[0][x]));
        std::memcpy(below + x * kColumns + column, &sums[1][x], sizeof(sums[1][x]));
      }
    }
  }

  // Channel c of the window that begins at (y, x). What lies outside of the image has no products.
  void add_window(const float* const (&pixels)[4][4], int64_t y, int64_t x, int64_t c, const Reg<float> (&taps)[3][3],
                  Reg<float>& sum) const {
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        const float* const pixel = pixels[y + i][x + j];
        if (pixel != zeros_) sum += splat_reg(pixel[c]) * taps[i][j];
      }
    }
  }

  // g from G g G^T: (a, b, c) is (u0, u1 - u2, u3) of u = G (a, b, c) = (a, (a + b + c) / 2, (a - b + c) / 2, c).
  void weights_of(const Weight* from, Reg<float> (&taps)[3][3]) const {
    Reg<float> lines[3][4];
    for (int64_t x = 0; x < 4; ++x) {
      const auto at = [&](int64_t y) { return load_reg(from + (4 * y + x) * p_.channels * kColumns); };
      lines[0][x] = at(0);
      lines[1][x] = at(1) - at(2);
      lines[2][x] = at(3);
    }
    for (int64_t y = 0; y < 3; ++y) {
      taps[y][0] = lines[y][0];
      taps[y][1] = lines[y][1] - lines[y][2];
      taps[y][2] = lines[y][3];
    }
    const Reg<float> mark = load_reg(from + kMarkPlace * p_.channels * kColumns);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      if (!std::isnan(mark[lane])) continue;
      for (int64_t n = 0; n < 9; ++n) taps[n / 3][n % 3][lane] = from[n * p_.channels * kColumns + lane];
    }
  }

  const Patches& p_;
  const float* const images_;
  const Tiles& tiles_;
  const Blocks& all_;
  const Weight* const b_;
  const int64_t columns_;
  const Epilogue<float>& epilogue_;
  int64_t first_ = 0, count_ = 0;  // the tiles at hand begin, and their blocks
  float *packed_ = nullptr, *sums_ = nullptr, *results_ = nullptr, *zeros_ = nullptr;
};

// The convolution of images, by tiles.
template <class Micro>
[[gnu::noinline]] void convolve_tiles(const Patches& patches, const float* images, int64_t windows, int64_t columns,
                                      const typename Micro::Weight* b, int limit, const Epilogue<float>& epilogue) {
  const Tiles tiles(patches, windows);
  if (tiles.count() <= 0 || columns <= 0) return;
  const Sizes g{tiles.count(), columns, patches.channels};
  const int threads = threads_for(kTilePlaces * g.rows * g.columns * g.depth / 64, kThreadWork, limit);
  const Blocks all = blocks_of<Micro>(g);
  const int64_t panels = ceil_div(columns, Micro::kColumns);
  const Grid grid = grid_of(all.count, panels, threads);
  // Weights are read from memory once for so many blocks at least, even if their pixels then leave the L2 cache.
  constexpr int64_t kLeastBlocks = 8;
  const int64_t place_bytes = kTilePlaces * patches.channels * int64_t(sizeof(float));
  const int64_t most = std::clamp(kPackedBytes / (place_bytes * Micro::kBlock), kLeastBlocks, kMostBlocks);
  const int64_t at_once = equal_parts(ceil_div(all.count, grid.rows), most);
  const bool stays = ceil_div(panels, grid.columns) * place_bytes * Micro::kColumns <= kPackedBytes;
  const SharesOfC shares(all, panels, grid, at_once, threads == 1 ? 1 : panels);
  parallel_work(shares.count(), 1, threads, kPieces, [&](const Take& take) {
    TilesOfThread<Micro> tiles_of_thread(patches, images, tiles, all, b, columns, epilogue);
    shares.each(take, [&](const Pieces& pieces) { tiles_of_thread.multiply(pieces, at_once, stays); });
  });
}

}  // namespace icpu::gemm
