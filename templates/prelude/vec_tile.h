// Square tiles: memory that is contiguous along another loop than the vectorized one, read and written with whole
// vectors and turned over in registers.
//
// Preconditions: any element type but bool. A tile is `height` rows of kLanes values, row t for point t of the other loop,
// held as the type that computes; where its lanes have 64 bits, it is turned over by quarters. The height is kLanes or,
// for lanes of 64 bits alone, kShortTile. Rows that take part are WholeTile or PartOfTile, with 0 < count <= height.
#pragma once

#include "vec_memory.h"

#include <utility>

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
// In 4x4 blocks by unpacking, then the blocks by shuffling quarters.
inline void transpose(Reg<float> (&r)[16]) {
  __m512 a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 4) {
    const auto pd = [&](int k) { return _mm512_castps_pd(a[i + k]); };
    b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(0), pd(2)));
    b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(0), pd(2)));
    b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(1), pd(3)));
    b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(1), pd(3)));
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88);
    a[i + 4] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xdd);
    a[i + 8] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
    a[i + 12] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0xdd);
  }
}
inline void transpose(Reg<double> (&r)[8]) {
  __m512d a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
    a[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm512_shuffle_f64x2(a[i], a[i + 2], 0x88);
    b[i + 1] = _mm512_shuffle_f64x2(a[i + 1], a[i + 3], 0x88);
    b[i + 2] = _mm512_shuffle_f64x2(a[i], a[i + 2], 0xdd);
    b[i + 3] = _mm512_shuffle_f64x2(a[i + 1], a[i + 3], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f64x2(b[i], b[i + 4], 0x88);
    r[i + 4] = _mm512_shuffle_f64x2(b[i], b[i + 4], 0xdd);
  }
}
#else
inline void transpose(Reg<float> (&r)[8]) {
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}
inline void transpose(Reg<double> (&r)[4]) {
  __m256d a[4];
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    a[i] = _mm256_unpacklo_pd(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_pd(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    r[i] = _mm256_permute2f128_pd(a[i], a[i + 2], 0x20);
    r[i + 2] = _mm256_permute2f128_pd(a[i], a[i + 2], 0x31);
  }
}
#endif

// The height of a tile that takes as many registers with lanes of 64 bits as a square one with lanes of 32.
inline constexpr int kShortTile = kLanes / 2;

inline int64_t short_tiles_in(int64_t points) { return (points + kShortTile - 1) / kShortTile; }

template <class T>
using tile_t = typename value_t<T>::value_type;

// All rows of a tile. Unrolled, what is done with each one finds it in a register: a tile that goes through memory fills
// the processor's window with its moves, so that fewer loads of the next one are on their way.
template <bool unrolled, int rows>
struct WholeTile {
  static constexpr bool whole = true;
  static constexpr int height = rows;
  static constexpr int64_t count = rows;
  template <class Step>
  ICPU_INLINE void each(const Step& step) const {
    if constexpr (unrolled) {
      [&]<int... row>(std::integer_sequence<int, row...>) ICPU_INLINE {
        (step(int64_t(row)), ...);
      }(std::make_integer_sequence<int, height>{});
    } else {
      for (int64_t row = 0; row < height; ++row) step(row);
    }
  }
};
template <int rows>
struct PartOfTile {
  static constexpr bool whole = false;
  static constexpr int height = rows;
  int64_t count;
  template <class Step>
  ICPU_INLINE void each(const Step& step) const {
    for (int64_t row = 0; row < count; ++row) step(row);
  }
};

// How many rows and lanes of a tile a masked load reads from the first ones on, 0 or less for none. Others are zeros.
struct Room {
  int64_t rows, lanes;
};

template <class Lanes>
struct LanesWithRoom {
  const Lanes& lanes;
  int64_t count;
  bool active(int lane) const { return lane < count && lanes.active(lane); }
};

// step(rows) for the rows of a tile that lie in [begin, end). In a WholeTile loads have room for all of it.
template <bool unrolled, int height = kLanes, class Lanes, class Step, class... Rooms>
inline ICPU_INLINE void with_tile(
    int64_t begin, int64_t end, const Lanes&, const Step& step, const Rooms&... rooms) {
  if (end - begin >= height && ((rooms.rows >= height && rooms.lanes >= kLanes) && ...)) {
    step(WholeTile<unrolled && Lanes::full, height>{});
  } else {
    step(PartOfTile<height>{end - begin});
  }
}

// One row of a tile. Copies, not vector loads and stores, which compilers do not look through.
template <class T>
inline ICPU_INLINE value_t<T> tile_row(const T* tile, int64_t row) {
  value_t<T> v;
  std::memcpy(&v, tile + row * kLanes, sizeof(v));
  return v;
}
template <class T>
inline ICPU_INLINE void put_tile_row(T* tile, int64_t row, const value_t<T>& v) {
  std::memcpy(tile + row * kLanes, &v, sizeof(v));
}

// Asks for the cache lines of each lane's row: index + lane * stride, which may lie beyond the memory.
template <class T, class Lanes>
inline ICPU_INLINE void fetch_tile(const T* p, int64_t index, int64_t stride, const Lanes& lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) fetch(p, index + i * stride, lanes);
}
template <class T, class Lanes>
inline ICPU_INLINE void fetch_tile_to_write(const T* p, int64_t index, int64_t stride, const Lanes& lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) fetch_to_write(p, index + i * stride, lanes);
}

// The first `count` values of a row.
template <class T>
inline ICPU_INLINE void store_start(T* p, int64_t count, const value_t<T>& row) {
#if defined(CPU_CAPABILITY_AVX512)
  store_unit(p, Tail(count).bits, row);
#else
  store_first(p, static_cast<int>(count), row);
#endif
}

// Lane i's row, p[i * stride + t] for t < rows.count; zeros for lanes that take no part.
template <class T, class Rows, class Lanes>
inline ICPU_INLINE value_t<T> load_row(const T* p, int64_t stride, const Rows& rows, const Lanes& lanes, int i) {
  value_t<T> row{};
  if (lanes.active(i)) {
    if (rows.count == kLanes) load_unit(p + i * stride, row);
    else load_unit(p + i * stride, Tail(rows.count).bits, row);
  }
  return row;
}
template <class T, class Rows, class Lanes>
inline ICPU_INLINE void store_row(
    T* p, int64_t stride, const Rows& rows, const Lanes& lanes, int i, const value_t<T>& row) {
  if (!lanes.active(i)) return;
  if (rows.count == kLanes) store_unit(p + i * stride, row);
  else store_start(p + i * stride, rows.count, row);
}

// The same where a row of a tile is a register of 64-bit elements, whose lanes are the first ones of a vector.
template <class T, class Rows, class Lanes>
inline ICPU_INLINE Reg<T> load_short_row(const T* p, int64_t stride, const Rows& rows, const Lanes& lanes, int i) {
  Reg<T> row{};
  if (lanes.active(i)) {
    if (rows.count == kShortTile) {
      std::memcpy(&row, p + i * stride, sizeof(row));
    } else {
      value_t<T> part{};
      load_unit(p + i * stride, Tail(rows.count).bits, part);
      row = part.r[0];
    }
  }
  return row;
}
template <class T, class Rows, class Lanes>
inline ICPU_INLINE void store_short_row(
    T* p, int64_t stride, const Rows& rows, const Lanes& lanes, int i, const Reg<T>& row) {
  if (!lanes.active(i)) return;
  if (rows.count == kShortTile) std::memcpy(static_cast<void*>(p + i * stride), &row, sizeof(row));
  else store_start(p + i * stride, rows.count, value_t<T>{{row}});
}

// tile[t][lane] = p[lane * stride + t] for t < rows.count.
template <class T, class Rows, class Lanes>
inline ICPU_INLINE void load_tile(const T* p, int64_t stride, const Rows& rows, const Lanes& lanes, tile_t<T>* tile) {
  Reg<float> r[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) r[i] = (Reg<float>)load_row(p, stride, rows, lanes, i).r[0];
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(tile + i * kLanes, &r[i], sizeof(r[i]));
}
template <class T, class Rows, class Lanes>
  requires(sizeof(T) == 8)
inline ICPU_INLINE void load_tile(const T* p, int64_t stride, const Rows& rows, const Lanes& lanes, T* tile) {
  constexpr int half = kLanes / 2, parts = Rows::height / half;
#pragma GCC unroll 2
  for (int first = 0; first < kLanes; first += half) {
    Reg<double> r[parts][half];
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      if constexpr (parts == 1) {
        r[0][i] = (Reg<double>)load_short_row(p, stride, rows, lanes, first + i);
      } else {
        const value_t<T> row = load_row(p, stride, rows, lanes, first + i);
        r[0][i] = (Reg<double>)row.r[0];
        r[1][i] = (Reg<double>)row.r[1];
      }
    }
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
      transpose(r[part]);
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) {
        std::memcpy(tile + (part * half + i) * kLanes + first, &r[part][i], sizeof(r[part][i]));
      }
    }
  }
}

// The same of a masked load.
template <class T, class Rows, class Lanes>
inline ICPU_INLINE void load_tile(
    const T* p, int64_t stride, const Rows& rows, const Lanes& lanes, const Room& room, tile_t<T>* tile) {
  if constexpr (!Rows::whole) {
    const Rows read{std::min(rows.count, room.rows)};
    load_tile(p, stride, read, LanesWithRoom<Lanes>{lanes, room.rows > 0 ? room.lanes : 0}, tile);
  } else {
    load_tile(p, stride, rows, lanes, tile);
  }
}

// p[lane * stride + t] = tile[t][lane] for t < rows.count.
template <class T, class Rows, class Lanes>
inline ICPU_INLINE void store_tile(T* p, int64_t stride, const Rows& rows, const Lanes& lanes, const tile_t<T>* tile) {
  Reg<float> r[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(&r[i], tile + i * kLanes, sizeof(r[i]));
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store_row(p, stride, rows, lanes, i, value_t<T>{{(Reg<tile_t<T>>)r[i]}});
}
template <class T, class Rows, class Lanes>
  requires(sizeof(T) == 8)
inline ICPU_INLINE void store_tile(T* p, int64_t stride, const Rows& rows, const Lanes& lanes, const T* tile) {
  constexpr int half = kLanes / 2, parts = Rows::height / half;
#pragma GCC unroll 2
  for (int first = 0; first < kLanes; first += half) {
    Reg<double> r[parts][half];
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) {
        std::memcpy(&r[part][i], tile + (part * half + i) * kLanes + first, sizeof(r[part][i]));
      }
      transpose(r[part]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      if constexpr (parts == 1) {
        store_short_row(p, stride, rows, lanes, first + i, (Reg<T>)r[0][i]);
      } else {
        store_row(p, stride, rows, lanes, first + i, value_t<T>{{(Reg<T>)r[0][i], (Reg<T>)r[1][i]}});
      }
    }
  }
}

}  // namespace icpu
