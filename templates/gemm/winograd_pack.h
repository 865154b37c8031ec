// The weights of a convolution of 3 x 3 neighbouring pixels, packed for products by tiles (winograd.h): G g G^T of each 3 x 3
// weights g. Where that is not finite, as of infinite weights, there are the weights themselves: see winograd.h.
//
// Preconditions: strides in elements, of any sign; B as multiply.h says, for a micro kernel whose panel is rows of kColumns
// columns (vectors.h, kPair 1); channels are a multiple of kStep.
#pragma once

#include "winograd.h"

namespace icpu::gemm {

struct TileWeights {
  const float* values;
  int64_t columns, channels;
  int64_t by_column, by_channel, by_line, by_pixel;
};

// G g G^T of 3 x 3 vectors; G = (1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1).
inline ICPU_INLINE void transform_weights(const Reg<float> (&g)[3][3], Reg<float> (&out)[4][4]) {
  const auto line = [](const Reg<float>& a, const Reg<float>& b, const Reg<float>& c, auto&& to) ICPU_INLINE {
    const Reg<float> ends = a + c;
    to(0, a);
    to(1, (ends + b) * 0.5f);
    to(2, (ends - b) * 0.5f);
    to(3, c);
  };
  Reg<float> lines[4][3];
#pragma GCC unroll 3
  for (int x = 0; x < 3; ++x) {
    line(g[0][x], g[1][x], g[2][x], [&](int y, const Reg<float>& v) ICPU_INLINE { lines[y][x] = v; });
  }
#pragma GCC unroll 4
  for (int y = 0; y < 4; ++y) {
    line(lines[y][0], lines[y][1], lines[y][2], [&](int x, const Reg<float>& v) ICPU_INLINE { out[y][x] = v; });
  }
}

// A vector of columns from `column` on, zeros beyond the last one.
inline ICPU_INLINE void load_weights(const TileWeights& w, int64_t column, int64_t channel, Reg<float> (&out)[3][3]) {
  float taps[9][kLanes] = {};
  const float* from = w.values + column * w.by_column + channel * w.by_channel;
  for (int64_t lane = 0, count = std::min<int64_t>(kLanes, w.columns - column); lane < count; ++lane, from += w.by_column) {
#pragma GCC unroll 9
    for (int n = 0; n < 9; ++n) taps[n][lane] = from[n / 3 * w.by_line + n % 3 * w.by_pixel];
  }
#pragma GCC unroll 9
  for (int n = 0; n < 9; ++n) out[n / 3][n % 3] = load_reg(taps[n]);
}

// Lanes of `places` that are not all finite become the weights, and the mark of them.
inline ICPU_INLINE void keep_what_is_infinite(const Reg<float> (&g)[3][3], Reg<float> (&places)[4][4]) {
  Reg<float> zeros = {};  // or NaN
#pragma GCC unroll 16
  for (int n = 0; n < kTilePlaces; ++n) zeros += places[n / 4][n % 4] * 0.0f;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    if (std::isfinite(zeros[lane])) continue;
    for (int n = 0; n < kTilePlaces; ++n) places[n / 4][n % 4][lane] = n < 9 ? g[n / 3][n % 3][lane] : 0.0f;
    places[kMarkPlace / 4][kMarkPlace % 4][lane] = NAN;
  }
}

template <class Micro>
[[gnu::noinline]] void pack_tiles(const TileWeights& weights, float* out, int limit) {
  const int64_t panels = ceil_div(weights.columns, Micro::kColumns), channels = weights.channels;
  const int threads = threads_for(kTilePlaces * weights.columns * channels / 64, kThreadWork, limit);
  parallel_for_rows(panels, channels, 1, threads, [&](int64_t panel, int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      for (int64_t c = 0; c < Micro::kColumns; c += kLanes) {
        Reg<float> taps[3][3], places[4][4];
        load_weights(weights, panel * Micro::kColumns + c, channel, taps);
        transform_weights(taps, places);
        keep_what_is_infinite(taps, places);
#pragma GCC unroll 16
        for (int64_t place = 0; place < kTilePlaces; ++place) {
          float* const to = out + ((panel * kTilePlaces + place) * channels + channel) * Micro::kColumns + c;
          std::memcpy(to, &places[place / 4][place % 4], sizeof(Reg<float>));
        }
      }
    }
  });
}

}  // namespace icpu::gemm
