// Loads whose lanes lie a fixed number of elements apart.
//
// Preconditions: those of vec_gather.h. p: the element of the first lane.
#pragma once

#include "vec_gather.h"

namespace icpu {

// -- any stride -------------------------------------------------------------------------------------------------------
// The words of a register, one by one: where gathers are slow, and for types that have none. Offsets that are numbers
// become part of the loads, which they would not as the lanes of a vector.
template <class Words, class Word>
inline ICPU_INLINE Words words_apart(const void* p, int64_t stride) {
  return [&]<int... lane>(std::integer_sequence<int, lane...>) ICPU_INLINE {
    const auto word = [&](int64_t at) ICPU_INLINE {
      Word value;
      std::memcpy(&value, static_cast<const char*>(p) + at * stride * int64_t{sizeof(Word)}, sizeof(Word));
      return value;
    };
    return Words{word(lane)...};
  }(std::make_integer_sequence<int, sizeof(Words) / sizeof(Word)>{});
}

struct Multiples {
  int64_t of;
  int64_t operator[](int64_t i) const { return i * of; }
};

#if defined(ICPU_SLOW_GATHERS)
inline constexpr bool kSlowGathers = true;
#else
inline constexpr bool kSlowGathers = false;
#endif

template <class T>
inline ICPU_INLINE value_t<T> load_unit_apart(const T* p, int64_t stride) {
  value_t<T> result;
  if constexpr (sizeof(T) >= 4) {
    using Word = std::conditional_t<sizeof(T) == 4, float, double>;  // integers would go through memory
    constexpr int n = kRegBytes / sizeof(T);
    for (int j = 0; j < value_t<T>::regs; ++j) {
      result.r[j] = bits_as<Reg<T>>(words_apart<Reg<Word>, Word>(p + j * n * stride, stride));
    }
  } else {
    T lane[kLanes];
    if constexpr (sizeof(T) == 2) {
      copy_halves(p, Multiples{stride}, lane);
    } else {
      typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
      const auto bytes = words_apart<Bytes, uint8_t>(p, stride);
      std::memcpy(static_cast<void*>(lane), &bytes, sizeof(lane));
    }
    load_unit(lane, result);
  }
  return result;
}

template <class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_apart(const T* p, int64_t stride, const Lanes& lanes) {
  if constexpr (Lanes::full && (kSlowGathers || sizeof(T) < 4)) {
    value_t<T, U> result;
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) put_unit(result, u, load_unit_apart(p + u * kLanes * stride, stride));
    return result;
  } else {
    return gather(p, lanes.iota(0, stride), lanes);
  }
}
// Masks of windows leave out lanes at borders only.
template <class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_apart(
    const T* p, int64_t stride, const Lanes& lanes, const Mask<U>& mask, const value_t<T, U>& fill) {
  if constexpr (Lanes::full) {
    if (!any(!mask)) return load_apart(p, stride, lanes);
  }
  return gather(p, lanes.iota(0, stride), lanes, mask, fill);
}

// -- short strides ----------------------------------------------------------------------------------------------------
// One unit of elements that lie 2 to 8 apart, from whole registers of neighbours; nothing beyond the last is read.
#if defined(CPU_CAPABILITY_AVX512)
// The registers of N words that 16 elements lie in, of which the last one ends with the last element.
template <int N, int Stride>
struct StridedRegisters {
  static constexpr int count = (15 * Stride + N) / N;
  static constexpr int start(int number) { return number == count - 1 ? 15 * Stride + 1 - N : number * N; }
  static constexpr int of_lane(int lane) { return lane * Stride / N; }
  static constexpr __mmask16 lanes_from(int number) {
    __mmask16 lanes = 0;
    for (int lane = 0; lane < 16; ++lane) lanes |= of_lane(lane) >= number ? 1 << lane : 0;
    return lanes;
  }
};

// Where lanes whose element lies in register number First or in the next one find it there.
template <class Word, int N, int Stride, int First>
struct StridedPlaces {
  alignas(64) Word place[N];
  constexpr StridedPlaces() : place() {
    using Registers = StridedRegisters<N, Stride>;
    for (int i = 0; i < N; ++i) {
      const int lane = i * 16 / N, number = Registers::of_lane(lane);
      const int at = lane * Stride - Registers::start(number) + (number - First) * N;
      place[i] = static_cast<Word>(number == First || number == First + 1 ? at : 0);
    }
  }
};

// pick(number, following) gives the lanes whose elements lie in register `number` or, if `following` is true, the next.
template <class Registers, class Pick>
inline ICPU_INLINE __m512i join_strided(const Pick& pick) {
  const auto from = [&]<int number>(std::integral_constant<int, number> first) ICPU_INLINE {
    return pick(first, std::bool_constant<(number + 1 < Registers::count)>{});
  };
  __m512i found = from(std::integral_constant<int, 0>{});
  [&]<int... pair>(std::integer_sequence<int, pair...>) ICPU_INLINE {
    ((found = _mm512_mask_mov_epi32(
          found, Registers::lanes_from(2 * pair + 2), from(std::integral_constant<int, 2 * pair + 2>{}))), ...);
  }(std::make_integer_sequence<int, (Registers::count - 1) / 2>{});
  return found;
}

template <int Stride>
inline __m512i load_strided_words(const int32_t* p) {
  using Registers = StridedRegisters<16, Stride>;
  return join_strided<Registers>([&](auto first, auto following) ICPU_INLINE {
    static constexpr StridedPlaces<int32_t, 16, Stride, first> places;
    const __m512i at = _mm512_load_si512(places.place);
    const auto words = [&](int number) ICPU_INLINE { return _mm512_loadu_si512(p + Registers::start(number)); };
    if constexpr (following) return _mm512_permutex2var_epi32(words(first), at, words(first + 1));
    else return _mm512_permutexvar_epi32(at, words(first));
  });
}

// The elements as the high halves of 32-bit lanes, with zeros below.
template <int Stride>
inline __m512i load_strided_halves(const uint16_t* p) {
  if constexpr (Stride == 2) return _mm512_slli_epi32(_mm512_maskz_loadu_epi16(0x55555555u, p), 16);
  using Registers = StridedRegisters<32, Stride>;
  return join_strided<Registers>([&](auto first, auto following) ICPU_INLINE {
    static constexpr StridedPlaces<uint16_t, 32, Stride, first> places;
    constexpr __mmask32 high = 0xaaaaaaaau;
    const __m512i at = _mm512_load_si512(places.place);
    const auto halves = [&](int number) ICPU_INLINE { return _mm512_loadu_si512(p + Registers::start(number)); };
    if constexpr (following) return _mm512_maskz_permutex2var_epi16(high, halves(first), at, halves(first + 1));
    else return _mm512_maskz_permutexvar_epi16(high, at, halves(first));
  });
}

template <int Stride, class T>
inline value_t<T> load_strided_unit(const T* p) {
  if constexpr (sizeof(T) == 4) {
    return {{bits_as<Reg<T>>(load_strided_words<Stride>(reinterpret_cast<const int32_t*>(p)))}};
  } else {
    const auto high = load_strided_halves<Stride>(reinterpret_cast<const uint16_t*>(p));
    if constexpr (std::is_same_v<T, bf16>) {
      return {{(Reg<float>)high}};
    } else if constexpr (std::is_same_v<T, f16>) {
      return {{of_f16_bits(_mm512_cvtepi32_epi16(_mm512_srli_epi32(high, 16)))}};
    } else {
      return {{(Reg<int32_t>)_mm512_srai_epi32(high, 16)}};
    }
  }
}
// Where the elements of words or halves come out of whole registers faster than one by one.
template <class T, int Stride>
inline constexpr bool kSortsStride = (sizeof(T) == 4 && (!kSlowGathers || Stride <= 5)) || sizeof(T) == 2;
#else
template <class T, int Stride>
inline constexpr bool kSortsStride = (sizeof(T) == 4 || sizeof(T) == 2) && Stride <= 6;

// Register r of as many as the stride starts at element 7 r; so the last one ends with the last element. In it, element 7 r + n
// is at place n: the elements have eight different places, since no stride from 2 to 6 has a divisor in common with 7.
template <int Stride>
struct StridedPlaces {
  static constexpr int of_lane(int lane) { return lane == 7 ? 7 : lane * Stride % 7; }
  static constexpr int in_register(int number) {
    int places = 0;
    for (int lane = 0; lane < 8; ++lane) {
      if (number == (lane == 7 ? Stride - 1 : lane * Stride / 7)) places |= 1 << of_lane(lane);
    }
    return places;
  }
  alignas(32) int32_t word[8];
  alignas(16) int8_t byte_of_half[16];
  constexpr StridedPlaces() : word(), byte_of_half() {
    for (int lane = 0; lane < 8; ++lane) word[lane] = of_lane(lane);
    for (int i = 0; i < 16; ++i) byte_of_half[i] = static_cast<int8_t>(2 * of_lane(i / 2) + i % 2);
  }
};

// replace(found, number, places): the register `found` with these places of register `number`.
template <int Stride, class Bits, class Replace>
inline ICPU_INLINE Bits join_strided(Bits found, const Replace& replace) {
  [&]<int... before>(std::integer_sequence<int, before...>) ICPU_INLINE {
    ((found = replace(
          found, before + 1, std::integral_constant<int, StridedPlaces<Stride>::in_register(before + 1)>{})), ...);
  }(std::make_integer_sequence<int, Stride - 1>{});
  return found;
}

template <int Stride>
inline __m256i load_strided_words(const int32_t* p) {
  static constexpr StridedPlaces<Stride> places;
  const auto words = [&](int number) ICPU_INLINE {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 7 * number));
  };
  const auto found = join_strided<Stride>(words(0), [&](__m256i others, int number, auto chosen) ICPU_INLINE {
    return _mm256_blend_epi32(others, words(number), chosen);
  });
  return _mm256_permutevar8x32_epi32(found, _mm256_load_si256(reinterpret_cast<const __m256i*>(places.word)));
}

template <int Stride>
inline __m128i load_strided_halves(const uint16_t* p) {
  static constexpr StridedPlaces<Stride> places;
  const auto halves = [&](int number) ICPU_INLINE {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 7 * number));
  };
  const auto found = join_strided<Stride>(halves(0), [&](__m128i others, int number, auto chosen) ICPU_INLINE {
    return _mm_blend_epi16(others, halves(number), chosen);
  });
  return _mm_shuffle_epi8(found, _mm_load_si128(reinterpret_cast<const __m128i*>(places.byte_of_half)));
}

template <int Stride, class T>
inline value_t<T> load_strided_unit(const T* p) {
  if constexpr (sizeof(T) == 4) {
    return {{bits_as<Reg<T>>(load_strided_words<Stride>(reinterpret_cast<const int32_t*>(p)))}};
  } else {
    const __m128i halves = load_strided_halves<Stride>(reinterpret_cast<const uint16_t*>(p));
    if constexpr (std::is_same_v<T, bf16>) {
      return {{(Reg<float>)((Reg<uint32_t>)_mm256_cvtepu16_epi32(halves) << 16)}};
    } else if constexpr (std::is_same_v<T, f16>) {
      return {{of_f16_bits(halves)}};
    } else {
      return {{(Reg<int32_t>)_mm256_cvtepi16_epi32(halves)}};
    }
  }
}
#endif

template <int Stride, class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_strided(const T* p, const Lanes& lanes) {
  if constexpr (kSortsStride<T, Stride> && Lanes::full) {
    value_t<T, U> result;
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) put_unit(result, u, load_strided_unit<Stride>(p + u * kLanes * Stride));
    return result;
  } else {
    return load_apart(p, Stride, lanes);
  }
}
template <int Stride, class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_strided(
    const T* p, const Lanes& lanes, const Mask<U>& mask, const value_t<T, U>& fill) {
  if constexpr (Lanes::full) {
    if (!any(!mask)) return load_strided<Stride>(p, lanes);
  }
  return gather(p, lanes.iota(0, Stride), lanes, mask, fill);
}

}  // namespace icpu
