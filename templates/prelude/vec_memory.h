// Loads and stores of vectors: contiguous, strided and at any address, with or without masks.
//
// Preconditions: lanes that do not take part (of a tail or of a mask) are neither read nor written. Loads give them 0,
// or `fill` where a mask is given. No alignment is needed.
#pragma once

#include "vec_float8.h"

namespace icpu {

// -- one unit of lanes ------------------------------------------------------------------------------------------------
inline Reg<float> load_reg(const float* p) {
  Reg<float> r;
  std::memcpy(&r, p, sizeof(r));
  return r;
}

#if defined(CPU_CAPABILITY_AVX512)
inline void load_unit(const float* p, __mmask16 m, Vec<float>& v) { v.r[0] = _mm512_maskz_loadu_ps(m, p); }
inline void load_unit(const int32_t* p, __mmask16 m, Vec<int32_t>& v) {
  v.r[0] = (Reg<int32_t>)_mm512_maskz_loadu_epi32(m, p);
}
inline void load_unit(const double* p, __mmask16 m, Vec<double>& v) {
  v.r[0] = _mm512_maskz_loadu_pd(static_cast<__mmask8>(m), p);
  v.r[1] = _mm512_maskz_loadu_pd(static_cast<__mmask8>(m >> 8), p + 8);
}
inline void load_unit(const int64_t* p, __mmask16 m, Vec<int64_t>& v) {
  v.r[0] = (Reg<int64_t>)_mm512_maskz_loadu_epi64(static_cast<__mmask8>(m), p);
  v.r[1] = (Reg<int64_t>)_mm512_maskz_loadu_epi64(static_cast<__mmask8>(m >> 8), p + 8);
}
inline void load_unit(const int16_t* p, __mmask16 m, Vec<int32_t>& v) {
  v.r[0] = (Reg<int32_t>)_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(m, p));
}
inline void load_unit(const int8_t* p, __mmask16 m, Vec<int32_t>& v) {
  v.r[0] = (Reg<int32_t>)_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, p));
}
inline void load_unit(const uint8_t* p, __mmask16 m, Vec<int32_t>& v) {
  v.r[0] = (Reg<int32_t>)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, p));
}
inline void load_unit(const bool* p, __mmask16 m, Mask<>& v) {
  const __m128i bytes = _mm_maskz_loadu_epi8(m, p);
  v.m[0] = _mm_test_epi8_mask(bytes, bytes);
}
inline void load_unit(const bf16* p, __mmask16 m, Vec<float>& v) {
  v.r[0] = (Reg<float>)((Reg<uint32_t>)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)) << 16);
}
inline void load_unit(const f16* p, __mmask16 m, Vec<float>& v) {
  v.r[0] = of_f16_bits(_mm256_maskz_loadu_epi16(m, p));
}
template <class Format>
inline void load_unit(const f8<Format>* p, __mmask16 m, Vec<float>& v) {
  v.r[0] = of_f8_codes<Format>(_mm_maskz_loadu_epi8(m, p));
}

inline void store_unit(float* p, __mmask16 m, const Vec<float>& v) { _mm512_mask_storeu_ps(p, m, v.r[0]); }
inline void store_unit(int32_t* p, __mmask16 m, const Vec<int32_t>& v) {
  _mm512_mask_storeu_epi32(p, m, (__m512i)v.r[0]);
}
inline void store_unit(double* p, __mmask16 m, const Vec<double>& v) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>(m), v.r[0]);
  _mm512_mask_storeu_pd(p + 8, static_cast<__mmask8>(m >> 8), v.r[1]);
}
inline void store_unit(int64_t* p, __mmask16 m, const Vec<int64_t>& v) {
  _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(m), (__m512i)v.r[0]);
  _mm512_mask_storeu_epi64(p + 8, static_cast<__mmask8>(m >> 8), (__m512i)v.r[1]);
}
inline void store_unit(int16_t* p, __mmask16 m, const Vec<int32_t>& v) {
  _mm256_mask_storeu_epi16(p, m, _mm512_cvtepi32_epi16((__m512i)v.r[0]));
}
inline void store_unit(int8_t* p, __mmask16 m, const Vec<int32_t>& v) {
  _mm_mask_storeu_epi8(p, m, _mm512_cvtepi32_epi8((__m512i)v.r[0]));
}
inline void store_unit(uint8_t* p, __mmask16 m, const Vec<int32_t>& v) {
  store_unit(reinterpret_cast<int8_t*>(p), m, v);
}
inline void store_unit(bool* p, __mmask16 m, const Mask<>& v) {
  _mm_mask_storeu_epi8(p, m, _mm_maskz_set1_epi8(v.m[0], 1));
}
inline void store_unit(bf16* p, __mmask16 m, const Vec<float>& v) {
  _mm256_mask_storeu_epi16(p, m, narrow_bf16(v.r[0]));
}
inline void store_unit(f16* p, __mmask16 m, const Vec<float>& v) { _mm256_mask_storeu_epi16(p, m, f16_bits(v.r[0])); }
template <class Format>
inline void store_unit(f8<Format>* p, __mmask16 m, const Vec<float>& v) {
  _mm_mask_storeu_epi8(p, m, packed_codes(f8_codes<Format>(v.r[0])));
}

// With all lanes: the compiler turns a mask of ones into the plain instruction.
template <class T>
inline void load_unit(const T* p, value_t<T>& v) { load_unit(p, static_cast<__mmask16>(0xffff), v); }
inline void load_unit(const bf16* p, Vec<float>& v) {
  v.r[0] = of_bf16_bits(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
template <class T>
inline void store_unit(T* p, const value_t<T>& v) { store_unit(p, static_cast<__mmask16>(0xffff), v); }
#else
template <class T>
  requires(sizeof(T) >= 4)
inline void load_unit(const T* p, Vec<T>& v) {
  // Register by register: compilers copy 64 bytes by 16, through the stack, where the registers wait for them.
  for (int j = 0; j < Vec<T>::regs; ++j) v.r[j] = (Reg<T>)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + j);
}
inline void load_unit(const int16_t* p, Vec<int32_t>& v) {
  v.r[0] = (Reg<int32_t>)_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void load_unit(const int8_t* p, Vec<int32_t>& v) {
  v.r[0] = (Reg<int32_t>)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline void load_unit(const uint8_t* p, Vec<int32_t>& v) {
  v.r[0] = (Reg<int32_t>)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline void load_unit(const bool* p, Mask<>& v) {
  Vec<int32_t> bytes;
  load_unit(reinterpret_cast<const uint8_t*>(p), bytes);
  v.m[0] = (MaskReg)(bytes.r[0] != Reg<int32_t>{});
}
inline void load_unit(const bf16* p, Vec<float>& v) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  v.r[0] = (Reg<float>)((Reg<uint32_t>)wide << 16);
}
inline void load_unit(const f16* p, Vec<float>& v) {
  v.r[0] = of_f16_bits(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <class Format>
inline void load_unit(const f8<Format>* p, Vec<float>& v) {
  v.r[0] = of_f8_codes<Format>(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

// The low 16 bits of each lane.
inline __m128i low_words(Reg<int32_t> a) {
  const __m256i masked = (__m256i)(a & 0xffff);
  const __m256i packed = _mm256_packus_epi32(masked, masked);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
}
template <class T>
  requires(sizeof(T) >= 4)
inline void store_unit(T* p, const Vec<T>& v) {
  for (int j = 0; j < Vec<T>::regs; ++j) _mm256_storeu_si256(reinterpret_cast<__m256i*>(p) + j, (__m256i)v.r[j]);
}
inline void store_unit(int16_t* p, const Vec<int32_t>& v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), low_words(v.r[0]));
}
inline void store_unit(uint8_t* p, const Vec<int32_t>& v) {
  const __m128i words = low_words(v.r[0] & 0xff);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}
inline void store_unit(int8_t* p, const Vec<int32_t>& v) { store_unit(reinterpret_cast<uint8_t*>(p), v); }
inline void store_unit(bool* p, const Mask<>& v) {
  store_unit(reinterpret_cast<uint8_t*>(p), Vec<int32_t>{{(Reg<int32_t>)v.m[0] & 1}});
}
inline void store_unit(bf16* p, const Vec<float>& v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(v.r[0]));
}
inline void store_unit(f16* p, const Vec<float>& v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), f16_bits(v.r[0]));
}
template <class Format>
inline void store_unit(f8<Format>* p, const Vec<float>& v) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), packed_codes(f8_codes<Format>(v.r[0])));
}

// Whether some bytes lie in one page: if one of them may be read, no read of another fails.
inline bool within_page(const void* p, int bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return false;
#else
  constexpr uintptr_t page = 4096;
  return reinterpret_cast<uintptr_t>(p) % page <= page - static_cast<uintptr_t>(bytes);
#endif
}
template <class T>
inline void keep_lanes(Vec<T>& v, MaskReg m) { v.r[0] = bits_as<Reg<T>>(_mm256_and_si256((__m256i)v.r[0], m)); }
inline void keep_lanes(Mask<>& v, MaskReg m) { v.m[0] = _mm256_and_si256(v.m[0], m); }

// Masked: by instruction for 4 and 8 bytes; narrower elements all at once within a page, else through a small array.
template <class T>
inline void load_unit(const T* p, MaskReg m, value_t<T>& v) {
  if constexpr (sizeof(T) == 4) {
    v.r[0] = bits_as<Reg<T>>(_mm256_maskload_epi32(reinterpret_cast<const int*>(p), m));
  } else if constexpr (sizeof(T) == 8) {
    const auto* q = reinterpret_cast<const long long*>(p);
    v.r[0] = bits_as<Reg<T>>(_mm256_maskload_epi64(q, (__m256i)mask_part<T>(m, 0)));
    v.r[1] = bits_as<Reg<T>>(_mm256_maskload_epi64(q + 4, (__m256i)mask_part<T>(m, 1)));
  } else {
    if (within_page(p, kLanes * int(sizeof(T))) && _mm256_testz_si256(m, m) == 0) {
      load_unit(p, v);
      keep_lanes(v, m);
      return;
    }
    T lane[kLanes];
    std::memset(static_cast<void*>(lane), 0, sizeof(lane));
    for (uint32_t bits = bits_of_mask(m); bits; bits &= bits - 1) {
      const int i = __builtin_ctz(bits);
      std::memcpy(static_cast<void*>(lane + i), p + i, sizeof(T));  // pairs need no alignment
    }
    load_unit(lane, v);
  }
}
template <class T>
inline void store_unit(T* p, MaskReg m, const value_t<T>& v) {
  if constexpr (sizeof(T) == 4) {
    _mm256_maskstore_epi32(reinterpret_cast<int*>(p), m, (__m256i)v.r[0]);
  } else if constexpr (sizeof(T) == 8) {
    auto* q = reinterpret_cast<long long*>(p);
    _mm256_maskstore_epi64(q, (__m256i)mask_part<T>(m, 0), (__m256i)v.r[0]);
    _mm256_maskstore_epi64(q + 4, (__m256i)mask_part<T>(m, 1), (__m256i)v.r[1]);
  } else {
    T lane[kLanes];
    store_unit(lane, v);
    for (uint32_t bits = bits_of_mask(m); bits; bits &= bits - 1) {
      const int i = __builtin_ctz(bits);
      std::memcpy(static_cast<void*>(p + i), lane + i, sizeof(T));
    }
  }
}

// The first `count` lanes, in pieces of 4, 2 and 1: on CPUs of AMD a store under a mask takes as long as a dozen others.
template <class T>
inline void store_first(T* p, int count, const value_t<T>& v) {
  alignas(kRegBytes) T lane[kLanes];
  store_unit(static_cast<T*>(lane), v);
  int done = 0;
#pragma GCC unroll 3
  for (int piece = 4; piece > 0; piece /= 2) {
    if ((count & piece) == 0) continue;
    std::memcpy(static_cast<void*>(p + done), lane + done, static_cast<size_t>(piece) * sizeof(T));
    done += piece;
  }
}
#endif

// -- units of a vector ------------------------------------------------------------------------------------------------
template <class T, int U>
inline void put_unit(Vec<T, U>& v, int u, const Vec<T>& unit) {
  for (int j = 0; j < Vec<T>::regs; ++j) v.r[u * Vec<T>::regs + j] = unit.r[j];
}
template <int U>
inline void put_unit(Mask<U>& v, int u, const Mask<>& unit) { v.m[u] = unit.m[0]; }
template <class T, int U>
inline Vec<T> unit_of(const Vec<T, U>& v, int u) {
  Vec<T> unit;
  for (int j = 0; j < Vec<T>::regs; ++j) unit.r[j] = v.r[u * Vec<T>::regs + j];
  return unit;
}
template <int U>
inline Mask<> unit_of(const Mask<U>& v, int u) { return {{v.m[u]}}; }

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
