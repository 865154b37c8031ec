// Loads and stores of vectors: contiguous, strided and at any address, with or without masks.
//
// Preconditions: lanes that do not take part (of a tail or of a mask) are neither read nor written. Loads give them 0,
// or `fill` where a mask is given. No alignment is needed.
#pragma once

#include "vec_unit.h"

namespace icpu {

// -- contiguous -------------------------------------------------------------------------------------------------------
template <class T, class Lanes>
inline value_t<T, Lanes::units> load(const T* p, const Lanes& lanes) {
  value_t<T, Lanes::units> result;
#pragma GCC unroll 8
  for (int u = 0; u < Lanes::units; ++u) {
    value_t<T> unit;
    if constexpr (Lanes::full) {
      load_unit(p + u * kLanes, unit);
    } else {
      load_unit(p, lanes.bits, unit);
    }
    put_unit(result, u, unit);
  }
  return result;
}

#if defined(CPU_CAPABILITY_AVX512)
inline void store_words(void* p, __m512i words) { _mm512_storeu_si512(p, words); }
inline __m512i bits_of_lanes(Reg<float> a) { return (__m512i)a; }
#else
inline void store_words(void* p, __m128i words) { _mm_storeu_si128(static_cast<__m128i*>(p), words); }
inline Reg<uint32_t> bits_of_lanes(Reg<float> a) { return (Reg<uint32_t>)a; }
#endif
inline void store_words(void* p, __m256i words) { _mm256_storeu_si256(static_cast<__m256i*>(p), words); }

template <class T, class Lanes>
inline void store(T* p, const value_t<T, Lanes::units>& v, const Lanes& lanes) {
  if constexpr (std::is_same_v<T, bf16> && Lanes::units % 2 == 0) {
#pragma GCC unroll 8
    for (int u = 0; u < Lanes::units; u += 2) store_words(p + u * kLanes, narrow_bf16(v.r[u], v.r[u + 1]));
    return;
  }
#pragma GCC unroll 8
  for (int u = 0; u < Lanes::units; ++u) {
    if constexpr (Lanes::full) {
      store_unit(p + u * kLanes, unit_of(v, u));
    } else {
#if defined(CPU_CAPABILITY_AVX512)
      store_unit(p, lanes.bits, unit_of(v, u));
#else
      store_first(p, lanes.count, unit_of(v, u));
#endif
    }
  }
}

// The same for lanes that hold nothing but values of T, where T is a low-precision type.
template <class T, class Lanes>
inline void store_rounded(T* p, const value_t<T, Lanes::units>& v, const Lanes& lanes) {
  if constexpr (std::is_same_v<T, bf16> && Lanes::full) {
#pragma GCC unroll 8
    for (int u = 0; u + 1 < Lanes::units; u += 2) {
      store_words(p + u * kLanes, high_words(bits_of_lanes(v.r[u]), bits_of_lanes(v.r[u + 1])));
    }
    if constexpr (Lanes::units % 2) {
      constexpr int last = Lanes::units - 1;
#if defined(CPU_CAPABILITY_AVX512)
      const __m512i words = _mm512_srli_epi32((__m512i)v.r[last], 16);
      store_words(p + last * kLanes, _mm512_cvtepi32_epi16(words));
#else
      const auto bits = bits_of_lanes(v.r[last]);
      store_words(p + last * kLanes, _mm256_castsi256_si128(high_words(bits, bits)));
#endif
    }
    return;
  }
  store(p, v, lanes);
}

// The same for lanes whose NaN have a low half of zeros, so that to round them needs no test. The instruction for bf16 has
// none either.
template <class Lanes>
inline void store_plain(bf16* p, const value_t<bf16, Lanes::units>& v, const Lanes& lanes) {
#if defined(ICPU_AVX512_BF16)
  store(p, v, lanes);
#else
  if constexpr (Lanes::full) {
    store_rounded(p, map([](Reg<float> x) { return (Reg<float>)plain_halves(x); }, v), lanes);
  } else {
    store(p, v, lanes);
  }
#endif
}

#if !defined(CPU_CAPABILITY_AVX512)
// Even and odd elements: those of any other type have no such loads and stores.
template <class T, int U>
value_t<T, U> load(const T* p, const Alternating<U>& lanes) = delete;
template <class T, int U>
void store(T* p, const value_t<T, U>& v, const Alternating<U>& lanes) = delete;
template <class T, int U>
void store_rounded(T* p, const value_t<T, U>& v, const Alternating<U>& lanes) = delete;

template <int U>
inline Vec<float, U> load(const bf16* p, const Alternating<U>&) {
  Vec<float, U> result;
#pragma GCC unroll 8
  for (int u = 0; u < U; u += 2) {
    const auto words = (Reg<uint32_t>)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + u * kLanes));
    result.r[u] = (Reg<float>)(words << 16);
    result.r[u + 1] = (Reg<float>)(words & 0xffff0000u);
  }
  return result;
}

// round(lane): a bf16 in the upper half.
template <int U, class Round>
inline ICPU_INLINE void store_alternating(bf16* p, const Vec<float, U>& v, const Round& round) {
  constexpr int kOdd = 0xaa;
#pragma GCC unroll 8
  for (int u = 0; u < U; u += 2) {
    const __m256i even = (__m256i)(round(v.r[u]) >> 16), odd = (__m256i)round(v.r[u + 1]);
    store_words(p + u * kLanes, _mm256_blend_epi16(even, odd, kOdd));
  }
}
template <int U>
inline void store(bf16* p, const Vec<float, U>& v, const Alternating<U>&) {
  store_alternating(p, v, halves);
}
template <int U>
inline void store_plain(bf16* p, const Vec<float, U>& v, const Alternating<U>&) {
  store_alternating(p, v, plain_halves);
}
template <int U>
inline void store_rounded(bf16* p, const Vec<float, U>& v, const Alternating<U>&) {
  store_alternating(p, v, bits_of_lanes);
}
#endif

template <class T, class Lanes, class V = value_t<T, Lanes::units>>
inline V load(const T* p, const Lanes& lanes, const Mask<Lanes::units>& mask, const V& fill) {
  const auto wanted = mask & lanes.mask();
  V result;
#pragma GCC unroll 8
  for (int u = 0; u < Lanes::units; ++u) {
    value_t<T> unit;
    load_unit(p + u * kLanes, wanted.m[u], unit);
    put_unit(result, u, unit);
  }
  return select(wanted, result, fill);
}

template <class T, class Lanes>
inline void store(T* p, const value_t<T, Lanes::units>& v, const Lanes& lanes, const Mask<Lanes::units>& mask) {
  const auto wanted = mask & lanes.mask();
#pragma GCC unroll 8
  for (int u = 0; u < Lanes::units; ++u) store_unit(p + u * kLanes, wanted.m[u], unit_of(v, u));
}

// The bytes of the equal pieces that a vector of so many bytes moves in: of a register at most.
inline constexpr int piece_of(int bytes) { return std::min(bytes & -bytes, kRegBytes); }

// The same elements, whatever they are: nothing is widened on the way.
template <class T, class Lanes>
inline void copy(T* to, const T* from, const Lanes& lanes) {
  if constexpr (Lanes::full) {
    constexpr int bytes = Lanes::units * kLanes * int(sizeof(T)), piece = piece_of(bytes);
    typedef char Piece __attribute__((vector_size(piece)));
    Piece pieces[bytes / piece];
    // One by one: gcc moves arrays in pieces of 16 bytes, for which a load of a whole register waits (`around`).
#pragma GCC unroll 8
    for (int i = 0; i < bytes / piece; ++i) {
      std::memcpy(&pieces[i], reinterpret_cast<const char*>(from) + i * piece, sizeof(Piece));
    }
#pragma GCC unroll 8
    for (int i = 0; i < bytes / piece; ++i) {
      std::memcpy(reinterpret_cast<char*>(to) + i * piece, &pieces[i], sizeof(Piece));
    }
  } else {
    store(to, load(from, lanes), lanes);
  }
}

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <int Bytes>
inline void stream(char* to, const char* from) {
  if constexpr (Bytes == 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), *reinterpret_cast<const __m128i*>(from));
  } else if constexpr (Bytes == 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), *reinterpret_cast<const __m256i*>(from));
#if defined(CPU_CAPABILITY_AVX512)
  } else {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), *reinterpret_cast<const __m512i*>(from));
#endif
  }
}
#endif

// Writes around the cache: `write` stores a whole vector at the place that it is given, which goes to memory from there.
// Does so where p is a multiple of a piece of it; ordered before what follows by sfence (parallel.h).
template <class T, class Lanes, class Write>
inline void around(T* p, const Lanes&, const Write& write) {
#if (defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)) && !defined(__SANITIZE_ADDRESS__)
  constexpr int bytes = Lanes::units * kLanes * int(sizeof(T)), piece = piece_of(bytes);
  if constexpr (Lanes::full && piece >= 16) {
    if (__builtin_expect(reinterpret_cast<uintptr_t>(p) % piece == 0, 1)) {
      alignas(kRegBytes) T line[Lanes::units * kLanes];
      write(static_cast<T*>(line));
#pragma GCC unroll 8
      for (int begin = 0; begin < bytes; begin += piece) {
        stream<piece>(reinterpret_cast<char*>(p) + begin, reinterpret_cast<const char*>(line) + begin);
      }
      return;
    }
  }
#endif
  write(p);
}

// Asks for the cache lines of a vector at an index: to read it soon, or in a while, or to write it soon. The index may lie
// beyond the memory.
// Inlined in any case: a call of a function that only asks for memory has no effect that the compiler would have to keep.
template <class T, class Lanes>
inline uintptr_t place_of(const T* p, int64_t index, const Lanes&, int line) {
  return reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(index) * sizeof(T) + static_cast<uintptr_t>(line) * 64;
}
template <class T, class Lanes>
inline constexpr int lines_of = (Lanes::units * kLanes * int(sizeof(T)) + 63) / 64;

template <class T, class Lanes>
inline ICPU_INLINE void fetch(const T* p, int64_t index, const Lanes& lanes) {
#pragma GCC unroll 8
  for (int line = 0; line < lines_of<T, Lanes>; ++line) {
    __builtin_prefetch(reinterpret_cast<const void*>(place_of(p, index, lanes, line)));
  }
}
template <class T, class Lanes>
inline ICPU_INLINE void fetch_far(const T* p, int64_t index, const Lanes& lanes) {
#pragma GCC unroll 8
  for (int line = 0; line < lines_of<T, Lanes>; ++line) {
    __builtin_prefetch(reinterpret_cast<const void*>(place_of(p, index, lanes, line)), 0, 2);
  }
}
template <class T, class Lanes>
inline ICPU_INLINE void fetch_to_write(const T* p, int64_t index, const Lanes& lanes) {
#pragma GCC unroll 8
  for (int line = 0; line < lines_of<T, Lanes>; ++line) {
    asm volatile("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(place_of(p, index, lanes, line))));
  }
}

// Where the first page of 4 KB begins at p + index or behind it.
template <class T>
inline uintptr_t page_from(const T* p, int64_t index) {
  return (reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(index) * sizeof(T) + 4095) & ~uintptr_t(4095);
}
// The first two lines of so many pages from there on, which need not exist.
template <int Pages, class T>
inline ICPU_INLINE void fetch_pages(const T* p, int64_t index) {
  const uintptr_t first = page_from(p, index);
#pragma GCC unroll 8
  for (int page = 0; page < Pages; ++page) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + page * 4096), 0, 2);
    __builtin_prefetch(reinterpret_cast<const void*>(first + page * 4096 + 64), 0, 2);
  }
}
template <int Pages, class T>
inline ICPU_INLINE void fetch_pages_to_write(const T* p, int64_t index) {
  const uintptr_t first = page_from(p, index);
#pragma GCC unroll 8
  for (int page = 0; page < Pages; ++page) {
    asm volatile("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(first + page * 4096)));
    asm volatile("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(first + page * 4096 + 64)));
  }
}

// table[i] = p[i % length].
template <class T, int N>
inline void repeat(const T* p, int length, T (&table)[N]) {
  for (int i = 0; i < N; ++i) table[i] = p[i % length];
}

// p[lane] += v[lane]; not atomic.
template <class T, class Lanes>
inline void store_add(T* p, const value_t<T, Lanes::units>& v, const Lanes& lanes) {
  if constexpr (std::is_same_v<T, bool>) {
    store(p, load(p, lanes) | v, lanes);
  } else {
    store(p, load(p, lanes) + v, lanes);
  }
}
template <class T, class Lanes>
inline void store_add(T* p, const value_t<T, Lanes::units>& v, const Lanes& lanes, const Mask<Lanes::units>& mask) {
  const auto old = load(p, lanes, mask, value_t<T, Lanes::units>{});
  if constexpr (std::is_same_v<T, bool>) {
    store(p, old | v, lanes, mask);
  } else {
    store(p, old + v, lanes, mask);
  }
}

// The same address for all lanes; it is read if any lane is wanted.
template <class T, class Lanes, class V = value_t<T, Lanes::units>>
inline V load_uniform(const T* p, const Lanes& lanes, const Mask<Lanes::units>& mask, const V& fill) {
  const auto wanted = mask & lanes.mask();
  return any(wanted) ? select(wanted, lanes.vec(load(p)), fill) : fill;
}

}  // namespace icpu
