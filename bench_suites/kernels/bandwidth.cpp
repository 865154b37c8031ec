// Moves the bytes of some streams once, as fast as some threads can.
//
// Preconditions: -fopenmp and the same OpenMP runtime as torch, whose threads the kernels have, too.
#include <immintrin.h>
#include <omp.h>

#include <cstdint>

// A vector: a line of 64 bytes or, without AVX-512, half of one.
#ifdef __AVX512F__
static const int64_t kParts = 1;
#else
static const int64_t kParts = 2;
#endif
typedef int64_t Part __attribute__((vector_size(64 / kParts)));

enum Kind : int64_t { kRead, kUpdate, kWrite };

// `lines` lines of 64 bytes from an address that is a multiple of 64.
struct Stream {
  Part* first;
  int64_t lines;
  int64_t kind;
};

static const int64_t kAhead = 32;  // lines: 2 KB

static void put(Part* to, Part value, bool around_cache) {
#ifdef __AVX512F__
  if (around_cache) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(value));
#else
  if (around_cache) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(value));
#endif
  *to = value;
}

static void ask(const Part* line, bool to_write) {
  if (to_write) {
    asm volatile("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(line)));
  } else {
    __builtin_prefetch(line);
  }
}

// Lines [begin, end) of one stream. An update writes what it has read.
template <bool around_cache>
static void move(const Stream& stream, int64_t begin, int64_t end, Part (&sums)[4]) {
  Part* const at = stream.first;
  const int64_t ahead = kAhead * kParts;
  begin *= kParts, end *= kParts;
  if (stream.kind == kRead) {
    int64_t i = begin;
    for (; i + 4 <= end; i += 4) {
      for (int k = 0; k < 4; k += kParts) ask(at + i + k + ahead, false);
      for (int k = 0; k < 4; ++k) sums[k] += at[i + k];
    }
    for (; i < end; ++i) sums[0] += at[i];
  } else if (stream.kind == kUpdate) {
    const Part zero = sums[0] ^ sums[0];
    for (int64_t i = begin; i < end; i += kParts) {
      ask(at + i + ahead, true);
      for (int k = 0; k < kParts; ++k) {
        Part value = at[i + k] | zero;
        asm volatile("" : "+v"(value));  // else the store of what was there already goes away
        at[i + k] = value;
      }
    }
  } else {
    for (int64_t i = begin; i < end; i += kParts) {
      if (!around_cache) ask(at + i + ahead, true);
      for (int k = 0; k < kParts; ++k) put(at + i + k, sums[0], around_cache);
    }
  }
}

// The streams side by side, a piece of about 2 KB of the longest one at a time; each thread has its part of all of them.
template <bool around_cache>
static int64_t move_all(const Stream* streams, int64_t count, int threads) {
  int64_t longest = 1, result = 0;
  for (int64_t s = 0; s < count; ++s) longest = streams[s].lines > longest ? streams[s].lines : longest;
  const int64_t pieces = (longest + 31) / 32;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const int64_t self = omp_get_thread_num(), of = omp_get_num_threads();
    Part sums[4] = {};
    for (int64_t piece = pieces * self / of; piece < pieces * (self + 1) / of; ++piece) {
      for (int64_t s = 0; s < count; ++s) {
        const int64_t lines = streams[s].lines;
        move<around_cache>(streams[s], lines * piece / pieces, lines * (piece + 1) / pieces, sums);
      }
    }
    _mm_sfence();
    const Part all = sums[0] + sums[1] + sums[2] + sums[3];
    __atomic_fetch_xor(&result, all[0], __ATOMIC_RELAXED);
  }
  return result;
}

// around_cache: writes with stores that do not read a line first.
extern "C" int64_t move_bytes(const void* streams, int64_t count, int threads, int around_cache) {
  const auto* all = static_cast<const Stream*>(streams);
  return around_cache ? move_all<true>(all, count, threads) : move_all<false>(all, count, threads);
}
