// Loads and stores of one unit of lanes, a register of floats wide, with or without a mask; units of vectors.
//
// Preconditions: lanes that do not take part are neither read nor written; loads give them 0. No alignment is needed.
#pragma once

#include "vec_float8.h"

namespace icpu {

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
// The same out of registers.
template <class T>
  requires(sizeof(T) == 4)
inline void store_first(T* p, int count, const value_t<T>& v) {
  __m128i rest = _mm256_castsi256_si128((__m256i)v.r[0]);
  auto* to = reinterpret_cast<char*>(p);
  if (count & 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), rest);
    rest = _mm256_extracti128_si256((__m256i)v.r[0], 1);
    to += 16;
  }
  if (count & 2) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), rest);
    rest = _mm_unpackhi_epi64(rest, rest);
    to += 8;
  }
  if (count & 1) _mm_storeu_si32(to, rest);
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

}  // namespace icpu
