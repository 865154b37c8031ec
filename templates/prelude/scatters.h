// Scatters of several threads whose points may meet in an element.
//
// Preconditions: as for parallel.h. A body gets (owner, to, begin, end): it runs the points from begin to end, those
// whose place the owner has, and writes to `to` in place of the buffer. A place is a number >= 0, the same for points
// that meet.
#pragma once

#include "parallel.h"
#include "scalar_math.h"

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#define ICPU_VECTORS
#include "vec_gather.h"
#endif

namespace icpu {

// -- owners -----------------------------------------------------------------------------------------------------------
// A thread that owns all places.
struct Everything {
  bool has(int64_t) const { return true; }
#if defined(ICPU_VECTORS)
  template <int U>
  Mask<U> has(const Vec<int64_t, U>&) const { return splat<U>(true); }
#endif
};

// The same for a buffer in the cache: elements of vectors are listed, and stored in a loop of their own.
struct Near : Everything {};

// One of several threads. Blocks of places are dealt out by their number times the golden ratio, modulo 1: neighbouring
// blocks spread evenly, and so do the places of a range that most points fall into.
class Share {
 public:
  Share(int self, int count, int shift)
      : first_(bound(self, count)), last_(bound(self + 1, count) - 1 - first_), shift_(shift) {}
  bool has(int64_t place) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(place) >> shift_) * kGolden - first_ <= last_;
  }
#if defined(ICPU_VECTORS)
  template <int U>
  Mask<U> has(const Vec<int64_t, U>& place) const {
    const auto block = map([&](Reg<int64_t> r) { return (Reg<int64_t>)((Reg<uint64_t>)r >> shift_); }, place);
    const auto turned = convert<int32_t>(block) * splat<U>(static_cast<int32_t>(kGolden));
    constexpr uint32_t kSign = 1u << 31;  // with the other sign, unsigned numbers compare as signed ones
    return turned - splat<U>(static_cast<int32_t>(first_ + kSign)) <= splat<U>(static_cast<int32_t>(last_ ^ kSign));
  }
#endif

 private:
  static constexpr uint32_t kGolden = 0x9e3779b1;
  static uint32_t bound(int part, int count) { return static_cast<uint32_t>((uint64_t(part) << 32) / count); }
  uint32_t first_, last_;
  int shift_;
};

// All points in each thread, whose owner has some of the places. together: places that have one owner, a power of two.
// Fewer than `least` places have one owner in all.
template <class T, class Body>
inline void parallel_owners(
    T* to, int64_t size, int64_t places, int64_t least, int64_t together, int threads, const Body& body) {
  constexpr int kMostOwners = 16, kBlocks = 256;  // what each thread repeats is wasted on more
  if (threads <= 1 || places < least) {
    body(Everything{}, to, int64_t(0), size);
    return;
  }
  const int shift = std::bit_width(static_cast<uint64_t>(std::max(together, places / kBlocks))) - 1;
  const int owners = std::min(threads, kMostOwners);
  parallel_parts(owners, 1, owners, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) body(Share(static_cast<int>(n), owners, shift), to, int64_t(0), size);
  });
}

// -- copies -----------------------------------------------------------------------------------------------------------
// x + kNothing<T> is x, for every x.
template <class T>
inline constexpr T kNothing = std::is_floating_point_v<T> ? T(-0.0) : T(0);

// Sums by pieces of the points, whose bounds, the last end excepted, are multiples of `align`: the first piece adds to
// the buffer, the others to copies of its elements, which are added to it in order.
template <class T, class Body>
inline void parallel_copies(
    T* to, int64_t elements, int64_t pieces, int64_t size, int64_t align, int threads, const Body& body) {
  const int64_t units = (size + align - 1) / align;
  const auto run = [&](int64_t piece, T* sums) {
    if (piece) std::fill_n(sums, elements, kNothing<T>);
    const int64_t begin = units * piece / pieces * align;
    const int64_t end = std::min(units * (piece + 1) / pieces * align, size);
    if (begin < end) body(Near{}, sums, begin, end);
  };
  const auto add = [&](const T* sums, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = plus<T>(to[i], sums[i]);
  };
  T* const copies = scratch<T, 1000>((threads > 1 ? pieces - 1 : 1) * elements);
  if (threads <= 1) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      run(piece, piece ? copies : to);
      if (piece) add(copies, 0, elements);
    }
    return;
  }
  parallel_parts(pieces, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) run(piece, piece ? copies + (piece - 1) * elements : to);
  });
  constexpr int64_t kLine = 64 / sizeof(T);
  parallel_parts(elements, kLine, threads, [&](int64_t begin, int64_t end) {
    for (int64_t piece = 1; piece < pieces; ++piece) add(copies + (piece - 1) * elements, begin, end);
  });
}

// -- lists ------------------------------------------------------------------------------------------------------------
// Points by pieces: those of piece p are points[starts[p]] to points[starts[p + 1] - 1], in their order.
struct Points {
  const int32_t* points;
  const int32_t* starts;
};

// The points from 0 to count - 1 by piece_of(point), a number below `pieces`. They live in a slot of the thread.
template <int slot, class PieceOf>
inline Points list_points(int64_t count, int64_t pieces, const PieceOf& piece_of) {
  int32_t* const points = scratch<int32_t, slot>(2 * count + pieces + 2);
  int32_t* const found = points + count;
  int32_t* const starts = found + count;  // of piece p at p + 1, until its points are listed
  std::fill_n(starts, pieces + 2, 0);
  for (int64_t i = 0; i < count; ++i) {
    found[i] = static_cast<int32_t>(piece_of(i));
    ++starts[found[i] + 2];
  }
  for (int64_t p = 0; p < pieces; ++p) starts[p + 2] += starts[p + 1];
  for (int64_t i = 0; i < count; ++i) points[starts[found[i] + 1]++] = static_cast<int32_t>(i);
  return {points, starts};
}

// body(begin, end) for ranges of pieces, one a thread, with about as many rows and points in each: most points may have
// a few of the rows. rows: of a piece.
template <class Body>
inline void parallel_pieces(const Points& list, int64_t pieces, int64_t rows, int threads, const Body& body) {
  const auto before = [&](int64_t piece) { return list.starts[piece] + rows * piece; };
  const auto bound = [&](int64_t part, int64_t count) {
    int64_t low = 0, high = pieces;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (before(middle) * count < before(pieces) * part) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  parallel_for(threads, 1, threads, [&](int64_t begin, int64_t end) {
    const int64_t first = bound(begin, threads), last = bound(end, threads);
    if (first < last) body(first, last);
  });
}

// -- stores of single elements ----------------------------------------------------------------------------------------
struct Adds {
  template <class T>
  static void store(T* place, const T& value) { store_add(place, load(&value)); }
#if defined(ICPU_VECTORS)
  template <class T, int U, class Lanes>
  static void store(
      T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Mask<U>& wanted, const Lanes& lanes) {
    scatter_add(p, at, v, lanes, wanted);
  }
#endif
};
struct Sets {
  template <class T>
  static void store(T* place, const T& value) { std::memcpy(static_cast<void*>(place), &value, sizeof(T)); }
#if defined(ICPU_VECTORS)
  template <class T, int U, class Lanes>
  static void store(
      T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Mask<U>& wanted, const Lanes& lanes) {
    scatter(p, at, v, lanes, wanted);
  }
#endif
};

// Stores at once, as fits who owns everything.
template <class T, class Kind>
struct AtOnce {
  T* to;
  void put(int64_t at, scalar_t<T> value, bool wanted) const {
    if (wanted) Kind::store(to + at, static_cast<T>(value));
  }
#if defined(ICPU_VECTORS)
  template <class Lanes, int U = Lanes::units>
  void put(const Vec<int64_t, U>& at, const value_t<T, U>& value, const Mask<U>& wanted, const Lanes& lanes) const {
    Kind::store(to, at, value, wanted, lanes);
  }
#endif
};

// A list of the wanted points, in their order, which are stored when it is full: how many of a vector are wanted is
// chance, which no branch predictor foresees, and lanes of a vector that has just been written come slowly from memory.
template <class T, class Kind>
class Listed {
 public:
  explicit Listed(T* to) : to_(to) {}
  Listed(const Listed&) = delete;
  ~Listed() { flush(); }
  void put(int64_t at, scalar_t<T> value, bool wanted) {
    at_[count_] = at;
    value_[count_] = static_cast<T>(value);
    count_ += wanted;
    if (count_ == kMost) flush();
  }
#if defined(ICPU_VECTORS)
  template <class Lanes, int U = Lanes::units>
  void put(const Vec<int64_t, U>& at, const value_t<T, U>& value, const Mask<U>& wanted, const Lanes&) {
    for (int u = 0; u < U; ++u) {
      append(unit_of(at, u), unit_of(value, u), wanted.m[u]);
      if (count_ > kMost - kLanes) flush();
    }
  }
#endif

 private:
  static constexpr int kMost = 256;
#if defined(ICPU_VECTORS)
  void append(const Vec<int64_t>& at, const value_t<T>& value, MaskReg wanted) {
    const uint32_t bits = bits_of_mask(wanted);
    if (bits == (1u << kLanes) - 1) {
      store_unit(at_ + count_, at);
      store_unit(value_ + count_, value);
      count_ += kLanes;
      return;
    }
#if defined(CPU_CAPABILITY_AVX512)
    if constexpr (sizeof(T) >= 4) {
      squeeze(at_, at, wanted);
      squeeze(value_, value, wanted);
      count_ += __builtin_popcount(bits);
      return;
    }
#endif
    const auto offset = spill(at);
    T lane[kLanes];
    store_unit(lane, value);
    int end = count_;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      at_[end] = offset[i];
      value_[end] = lane[i];
      end += bits >> i & 1;
    }
    count_ = end;
  }
#endif
#if defined(CPU_CAPABILITY_AVX512)
  // The wanted lanes next to each other, behind what is listed; the rest of the list is overwritten.
  template <class E>
  void squeeze(E* list, const Vec<E>& v, __mmask16 wanted) const {
    E* p = list + count_;
    for (int j = 0; j < Vec<E>::regs; ++j) {
      const auto part = mask_part<E>(wanted, j);
      if constexpr (sizeof(E) == 4) {
        _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(part, (__m512i)v.r[j]));
      } else {
        _mm512_storeu_si512(p, _mm512_maskz_compress_epi64(part, (__m512i)v.r[j]));
      }
      p += __builtin_popcount(part);
    }
  }
#endif
  void flush() {
    const int64_t* at = at_;
    const T* value = value_;
    // What is listed is in memory from here on: GCC 12 takes the one pointer for a multiple of the other, where T is
    // narrow, and then for one to other memory.
    asm volatile("" : "+r"(at), "+r"(value) : : "memory");
    for (int k = 0; k < count_; ++k) Kind::store(to_ + at[k], value[k]);
    count_ = 0;
  }

  T* to_;
  int count_ = 0;
  int64_t at_[kMost];
  T value_[kMost];
};

template <class Kind, class T>
inline AtOnce<T, Kind> stores_of(const Everything&, T* to) { return {to}; }
#if defined(ICPU_VECTORS)
template <class Kind, class T>
inline Listed<T, Kind> stores_of(const Near&, T* to) { return Listed<T, Kind>(to); }
#endif
template <class Kind, class T>
inline Listed<T, Kind> stores_of(const Share&, T* to) { return Listed<T, Kind>(to); }

}  // namespace icpu
