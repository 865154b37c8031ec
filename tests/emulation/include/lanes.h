// What instructions do to lanes, in plain C++: see avx512.h, which gives these functions the intrinsics' names.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace icpu::emulated {

// What a register holds, by its lanes.
template <class T, int N>
struct Lanes {
  static constexpr int count = N;
  T lane[N];
  T& operator[](int i) { return lane[i]; }
  T operator[](int i) const { return lane[i]; }
};

template <class T, class V>
inline Lanes<T, sizeof(V) / sizeof(T)> lanes(const V& from) {
  Lanes<T, sizeof(V) / sizeof(T)> to;
  std::memcpy(&to, &from, sizeof(V));
  return to;
}

// A register V with f(i) in lane i of type T.
template <class V, class T, class F>
inline V each(const F& f) {
  Lanes<T, sizeof(V) / sizeof(T)> to;
  for (int i = 0; i < to.count; ++i) to[i] = f(i);
  V result;
  std::memcpy(&result, &to, sizeof(V));
  return result;
}

inline bool bit(uint64_t mask, int i) { return (mask >> i & 1) != 0; }

// The bits i for which f(i).
template <int count, class F>
inline uint64_t mask(const F& f) {
  uint64_t bits = 0;
  for (int i = 0; i < count; ++i) bits |= uint64_t(f(i)) << i;
  return bits;
}

// `yes` where the mask has a one.
template <class T, class V>
inline V select(uint64_t m, const V& yes, const V& no) {
  const auto a = lanes<T>(yes), b = lanes<T>(no);
  return each<V, T>([&](int i) { return bit(m, i) ? a[i] : b[i]; });
}

// Lanes of memory that the mask has, and zeros. The others are not touched.
template <class V, class T>
inline V load(uint64_t m, const void* p) {
  return each<V, T>([&](int i) {
    T value = 0;
    if (bit(m, i)) std::memcpy(&value, static_cast<const T*>(p) + i, sizeof(T));
    return value;
  });
}

template <class T, class V>
inline void store(void* p, uint64_t m, const V& v) {
  const auto from = lanes<T>(v);
  for (int i = 0; i < from.count; ++i) {
    if (bit(m, i)) std::memcpy(static_cast<T*>(p) + i, &from.lane[i], sizeof(T));
  }
}

template <class V>
inline V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}

template <class V>
inline void store(void* p, const V& v) {
  std::memcpy(p, &v, sizeof(V));
}

// As the instructions that demand it.
inline const void* aligned(const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % 64 != 0) std::abort();
  return p;
}
inline void* aligned(void* p) { return const_cast<void*>(aligned(static_cast<const void*>(p))); }

// The part number `part` of a register, and a register with another one there.
template <class Part, class V>
inline Part part(const V& v, int number) {
  Part result;
  std::memcpy(&result, reinterpret_cast<const char*>(&v) + sizeof(Part) * number, sizeof(Part));
  return result;
}
template <class V, class Part>
inline V with_part(V v, const Part& value, int number) {
  std::memcpy(reinterpret_cast<char*>(&v) + sizeof(Part) * number, &value, sizeof(Part));
  return v;
}

// Lanes of T as values of To, one by one.
template <class V, class To, class From, class Source>
inline V convert(const Source& source) {
  const auto from = lanes<From>(source);
  return each<V, To>([&](int i) { return static_cast<To>(from[i]); });
}

// Lanes of a and b in turns, of the low or of the high half of each 128 bits.
template <class T, class V>
inline V unpack(const V& a, const V& b, bool high) {
  constexpr int group = 16 / sizeof(T);
  const auto x = lanes<T>(a), y = lanes<T>(b);
  return each<V, T>([&](int i) {
    const int at = i / group * group + i % group / 2 + (high ? group / 2 : 0);
    return i % 2 ? y[at] : x[at];
  });
}

template <class T, class Index, class V>
inline V permute(const V& a, const __m512i& index) {
  const auto from = lanes<T>(a);
  const auto at = lanes<Index>(index);
  return each<V, T>([&](int i) { return from[at[i] % from.count]; });
}

// The next bit of an index after those of a lane says which of the two.
template <class T, class Index, class V>
inline V permute(const V& a, const __m512i& index, const V& b) {
  const auto x = lanes<T>(a), y = lanes<T>(b);
  const auto at = lanes<Index>(index);
  return each<V, T>([&](int i) { return (at[i] / x.count % 2 ? y : x)[at[i] % x.count]; });
}

// Four lanes of 32 bits, in each 128, by two bits of the immediate each.
template <class T, class V>
inline V shuffle_in_fours(const V& a, int immediate) {
  const auto from = lanes<T>(a);
  return each<V, T>([&](int i) { return from[i / 4 * 4 + (immediate >> 2 * (i % 4) & 3)]; });
}

// Four parts of 128 bits: two of a, two of b.
template <class V>
inline V shuffle_parts(const V& a, const V& b, int immediate) {
  V result = a;
  for (int i = 0; i < 4; ++i) result = with_part(result, part<__m128i>(i < 2 ? a : b, immediate >> 2 * i & 3), i);
  return result;
}

// Which of less, equal, greater and unordered each of the 16 predicates holds for, in the bits 0 to 3. The other 16
// differ in what they signal.
inline constexpr uint8_t kPredicates[16] = {2, 1, 3, 8, 13, 14, 12, 7, 10, 9, 11, 0, 5, 6, 4, 15};

template <class T, class V>
inline uint64_t compare(const V& a, const V& b, int predicate) {
  const auto x = lanes<T>(a), y = lanes<T>(b);
  return mask<x.count>([&](int i) {
    const int how = x[i] < y[i] ? 0 : x[i] == y[i] ? 1 : x[i] > y[i] ? 2 : 3;
    return bit(kPredicates[predicate & 15], how);
  });
}

// Of integers: equal, less, less or equal, never, and the opposites.
template <class T, class V>
inline uint64_t compare_integers(const V& a, const V& b, int predicate) {
  const auto x = lanes<T>(a), y = lanes<T>(b);
  return mask<x.count>([&](int i) {
    const bool holds[4] = {x[i] == y[i], x[i] < y[i], x[i] <= y[i], false};
    return holds[predicate & 3] != ((predicate & 4) != 0);
  });
}

template <class T>
inline T rounded(T x, int immediate) {
  switch (immediate & 7) {
    case _MM_FROUND_TO_NEAREST_INT: return std::nearbyint(x);
    case _MM_FROUND_TO_NEG_INF: return std::floor(x);
    case _MM_FROUND_TO_POS_INF: return std::ceil(x);
    case _MM_FROUND_TO_ZERO: return std::trunc(x);
    default: return std::nearbyint(x);
  }
}

inline void demand(bool holds) {
  if (!holds) std::abort();
}

template <class V, class T>
inline V gather(uint64_t m, const V& other, const Lanes<int64_t, sizeof(V) / sizeof(T)>& at, const void* p, int scale) {
  const auto old = lanes<T>(other);
  return each<V, T>([&](int i) {
    T value = old[i];
    if (bit(m, i)) std::memcpy(&value, static_cast<const char*>(p) + at[i] * scale, sizeof(T));
    return value;
  });
}

template <class T, class V>
inline void scatter(void* p, uint64_t m, const Lanes<int64_t, sizeof(V) / sizeof(T)>& at, const V& v, int scale) {
  const auto from = lanes<T>(v);
  for (int i = 0; i < from.count; ++i) {
    if (bit(m, i)) std::memcpy(static_cast<char*>(p) + at[i] * scale, &from.lane[i], sizeof(T));
  }
}

template <class T>
inline __m512i compress(uint64_t m, const __m512i& a) {
  const auto from = lanes<T>(a);
  Lanes<T, 64 / sizeof(T)> to{};
  int next = 0;
  for (int i = 0; i < from.count; ++i) {
    if (bit(m, i)) to[next++] = from[i];
  }
  return load<__m512i>(&to);
}

// a * 2^floor(b), rounded once: a product of double is exact for every b that does not give zero or infinity anyway. An
// infinite b decides the result also for a quiet NaN.
inline float scaled(float a, float b) {
  if (std::isnan(a) && std::isinf(b)) return b > 0 ? b : 0.0f;
  if (std::isnan(a) || std::isnan(b)) return a + b;
  if (std::isinf(b) && (b > 0 ? a == 0 : std::isinf(a))) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(std::ldexp(double(a), static_cast<int>(std::fmin(std::fmax(std::floor(b), -500), 500))));
}

// The significand in [0.75, 1.5), and NaN for what is negative.
inline float significand(float x) {
  if (std::isnan(x) || x < 0) return std::numeric_limits<float>::quiet_NaN();
  if (x == 0 || std::isinf(x)) return 1.0f;
  int exponent;
  const float half_to_one = std::frexp(x, &exponent);
  return half_to_one < 0.75f ? 2 * half_to_one : half_to_one;
}

inline float exponent(float x) {
  if (std::isnan(x)) return x;
  return x == 0 ? -INFINITY : std::isinf(x) ? INFINITY : static_cast<float>(std::ilogb(x));
}

// Within 2^-14 of 1 / x: as little as the instruction promises.
inline float about_reciprocal(float x) {
  const float exact = 1 / x;
  if (!std::isnormal(exact)) return exact;
  uint32_t bits;
  std::memcpy(&bits, &exact, 4);
  bits &= 0xfffffe00;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

// Bits of the immediate: quiet NaN, +0, -0, +infinity, -infinity, denormal, negative and finite.
inline bool is_of_class(float x, int classes) {
  const bool negative = std::signbit(x);
  return (bit(classes, 0) && std::isnan(x)) || (bit(classes, negative ? 2 : 1) && x == 0) ||
         (bit(classes, negative ? 4 : 3) && std::isinf(x)) || (bit(classes, 5) && std::fpclassify(x) == FP_SUBNORMAL) ||
         (bit(classes, 6) && negative && std::isfinite(x));
}

template <class A>
inline int32_t dot_of_bytes(int32_t sum, uint32_t a, uint32_t b) {
  for (int i = 0; i < 4; ++i) sum += int32_t(static_cast<A>(a >> 8 * i)) * int32_t(static_cast<int8_t>(b >> 8 * i));
  return sum;
}

inline int32_t dot_of_shorts(uint32_t a, uint32_t b) {
  const int64_t sum = int64_t(static_cast<int16_t>(a)) * static_cast<int16_t>(b) +
                      int64_t(static_cast<int16_t>(a >> 16)) * static_cast<int16_t>(b >> 16);
  return static_cast<int32_t>(static_cast<uint32_t>(sum));
}

}  // namespace icpu::emulated
