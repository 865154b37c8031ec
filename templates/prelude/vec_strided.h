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

// Which lane the elements of register number `number` are, for the masks of loads that leave lanes out: the words of 32 bits
// of N words that are lanes, and where their lane's bits are among N words of all lanes.
template <class Word, int N, int Stride, int number>
struct LanesOfElements {
  alignas(64) Word place[N];
  uint64_t lanes;
  constexpr LanesOfElements() : place(), lanes() {
    for (int i = 0; i < N; ++i) {
      const int at = StridedRegisters<N, Stride>::start(number) + i;
      if (at % Stride != 0) continue;
      place[i] = static_cast<Word>(at / Stride * (N / 16));
      lanes |= uint64_t{1} << i;
    }
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

// All lanes: every register is read as a whole.
struct EveryLane {
  template <int N, int Stride, int number, class T>
  __m512i read(const T* p) const {
    return _mm512_loadu_si512(p + StridedRegisters<N, Stride>::start(number));
  }
};
// Some lanes, each 32 bits of ones: no element of another one is read.
struct SomeLanes {
  __m512i on;
  explicit SomeLanes(__mmask16 lanes) : on(_mm512_maskz_set1_epi32(lanes, -1)) {}
  template <int N, int Stride, int number, class T>
  __m512i read(const T* p) const {
    static constexpr LanesOfElements<T, N, Stride, number> elements;
    const __m512i at = _mm512_load_si512(elements.place);
    p += StridedRegisters<N, Stride>::start(number);
    if constexpr (sizeof(T) == 4) {
      const auto wanted = _mm512_movepi32_mask(_mm512_maskz_permutexvar_epi32(elements.lanes, at, on));
      return _mm512_maskz_loadu_epi32(wanted, p);
    } else {
      const auto wanted = _mm512_movepi16_mask(_mm512_maskz_permutexvar_epi16(elements.lanes, at, on));
      return _mm512_maskz_loadu_epi16(wanted, p);
    }
  }
};

template <int Stride, class Lanes>
inline __m512i load_strided_words(const int32_t* p, const Lanes& lanes) {
  using Registers = StridedRegisters<16, Stride>;
  return join_strided<Registers>([&](auto first, auto following) ICPU_INLINE {
    static constexpr StridedPlaces<int32_t, 16, Stride, first> places;
    const __m512i at = _mm512_load_si512(places.place), words = lanes.template read<16, Stride, first>(p);
    if constexpr (!following) return _mm512_permutexvar_epi32(at, words);
    else return _mm512_permutex2var_epi32(words, at, lanes.template read<16, Stride, first + 1>(p));
  });
}

// The elements as the high halves of 32-bit lanes, with zeros below.
template <int Stride, class Lanes>
inline __m512i load_strided_halves(const uint16_t* p, const Lanes& lanes) {
  if constexpr (Stride == 2 && std::is_same_v<Lanes, EveryLane>) {
    return _mm512_slli_epi32(_mm512_maskz_loadu_epi16(0x55555555u, p), 16);
  }
  using Registers = StridedRegisters<32, Stride>;
  return join_strided<Registers>([&](auto first, auto following) ICPU_INLINE {
    static constexpr StridedPlaces<uint16_t, 32, Stride, first> places;
    constexpr __mmask32 high = 0xaaaaaaaau;
    const __m512i at = _mm512_load_si512(places.place), halves = lanes.template read<32, Stride, first>(p);
    if constexpr (!following) return _mm512_maskz_permutexvar_epi16(high, at, halves);
    else return _mm512_maskz_permutex2var_epi16(high, halves, at, lanes.template read<32, Stride, first + 1>(p));
  });
}

template <int Stride, class T, class Lanes>
inline value_t<T> load_strided_unit(const T* p, const Lanes& lanes) {
  if constexpr (sizeof(T) == 4) {
    return {{bits_as<Reg<T>>(load_strided_words<Stride>(reinterpret_cast<const int32_t*>(p), lanes))}};
  } else {
    const auto high = load_strided_halves<Stride>(reinterpret_cast<const uint16_t*>(p), lanes);
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
template <class T, int Stride>
inline constexpr bool kSortsSomeOfStride = kSortsStride<T, Stride>;
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
  alignas(32) int32_t word[8], lane_of_word[8];
  alignas(16) int8_t byte_of_half[16];
  constexpr StridedPlaces() : word(), lane_of_word(), byte_of_half() {
    for (int lane = 0; lane < 8; ++lane) word[lane] = of_lane(lane), lane_of_word[of_lane(lane)] = lane;
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

// All lanes, or some of them, each 32 bits of ones: no element of another one is read.
struct EveryLane {};
struct SomeLanes {
  __m256i on;
};

template <int Stride>
inline __m256i load_strided_words(const int32_t* p, const EveryLane&) {
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
inline __m256i load_strided_words(const int32_t* p, const SomeLanes& lanes) {
  static constexpr StridedPlaces<Stride> places;
  const auto table = [](const int32_t* t) ICPU_INLINE { return _mm256_load_si256(reinterpret_cast<const __m256i*>(t)); };
  // The lanes in the order of the places: each of these holds one element of one register.
  const __m256i on = _mm256_permutevar8x32_epi32(lanes.on, table(places.lane_of_word)), none = _mm256_setzero_si256();
  constexpr int in_first = StridedPlaces<Stride>::in_register(0);
  const __m256i first = _mm256_maskload_epi32(p, _mm256_blend_epi32(none, on, in_first));
  const auto found = join_strided<Stride>(first, [&](__m256i others, int number, auto chosen) ICPU_INLINE {
    return _mm256_or_si256(others, _mm256_maskload_epi32(p + 7 * number, _mm256_blend_epi32(none, on, chosen)));
  });
  return _mm256_permutevar8x32_epi32(found, table(places.word));
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

template <int Stride, class T, class Lanes>
inline value_t<T> load_strided_unit(const T* p, const Lanes& lanes) {
  if constexpr (sizeof(T) == 4) {
    return {{bits_as<Reg<T>>(load_strided_words<Stride>(reinterpret_cast<const int32_t*>(p), lanes))}};
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

template <class T, int Stride>
inline constexpr bool kSortsSomeOfStride = kSortsStride<T, Stride> && sizeof(T) == 4;  // words alone have loads with masks
#endif

template <int Stride, class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_strided(const T* p, const Lanes& lanes) {
  if constexpr (kSortsStride<T, Stride> && Lanes::full) {
    value_t<T, U> result;
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) put_unit(result, u, load_strided_unit<Stride>(p + u * kLanes * Stride, EveryLane{}));
    return result;
  } else if constexpr (kSortsSomeOfStride<T, Stride>) {
    return load_strided_unit<Stride>(p, SomeLanes{lanes.mask().m[0]});
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
  if constexpr (kSortsSomeOfStride<T, Stride>) {
    const auto wanted = mask & lanes.mask();
    value_t<T, U> result;
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      put_unit(result, u, load_strided_unit<Stride>(p + u * kLanes * Stride, SomeLanes{wanted.m[u]}));
    }
    return select(wanted, result, fill);
  } else {
    return gather(p, lanes.iota(0, Stride), lanes, mask, fill);
  }
}

}  // namespace icpu
