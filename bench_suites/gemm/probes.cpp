// What the machine can do at most: multiplications in registers and reading memory, on a number of threads.
//
// Each function returns operations, or bytes, a second; 0 where the CPU lacks the instruction. amx_* need a process that
// asked for tile data. Their operands are random numbers: with zeros the unit needs less power, and the core's clock is
// about a quarter higher than any real product's.
#include <immintrin.h>
#include <omp.h>

#include <cstdint>
#include <ctime>

namespace {

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

#if defined(__AMX_TILE__)
struct alignas(64) Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Operands of four tiles: bf16 between 1/128 and 2 of both signs, or any bytes.
struct alignas(64) Operands {
  uint16_t values[4][512];

  explicit Operands(bool floats) {
    uint32_t state = 1;
    for (auto& tile : values) {
      for (uint16_t& value : tile) {
        state = state * 1664525u + 1013904223u;
        const auto bits = static_cast<uint16_t>(state >> 16);
        value = floats ? uint16_t((bits & 0x83ff) | 0x3c00) : bits;
      }
    }
  }
};

// Four tiles of sums, and of operands in the L1 cache, as in a product that waits for nothing.
template <class Step>
double tiles(int threads, int64_t rounds, double operations, bool floats, const Step& step) {
  const double start = now();
#pragma omp parallel num_threads(threads)
  {
    const Config config;
    const Operands operands(floats);
    asm volatile("" : : "r"(&config), "r"(&operands) : "memory");
    _tile_loadconfig(&config);
    for (int64_t i = 0; i < rounds; ++i) {
      if (i % 32 == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      _tile_loadd(4, operands.values[0], 64);
      _tile_loadd(5, operands.values[1], 64);
      _tile_loadd(6, operands.values[2], 64);
      _tile_loadd(7, operands.values[3], 64);
      step();
    }
    _tile_release();
  }
  return operations * double(rounds) * threads / (now() - start);
}
#endif

#if defined(__AVX2__)
// `count` registers of sums, enough to hide the time of an instruction, each with one operation by `factor` a round. Of
// integers no more than half of the registers: g++ 12 copies their sums in each round, and has to have a place for them.
template <int count, class Vector, class Step>
double registers(int threads, int64_t rounds, double operations, Vector factor, const Step& step) {
  const double start = now();
  volatile float sink = 0;
#pragma omp parallel num_threads(threads) firstprivate(factor)
  {
    Vector sum[count];
    asm volatile("" : "+v"(factor));
    for (Vector& s : sum) s = factor;
    for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 32
      for (Vector& s : sum) step(s, factor);
    }
    Vector all = sum[0];
    for (int i = 1; i < count; ++i) all += sum[i];
    if (all[0] == 1) sink = 1;
  }
  return count * operations * double(rounds) * threads / (now() - start);
}
#endif

}  // namespace

extern "C" {

double amx_bf16(int threads, int64_t rounds) {
#if defined(__AMX_BF16__)
  return tiles(threads, rounds, 4 * 2 * 16 * 16 * 32, true, [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  });
#else
  return 0;
#endif
}

double amx_int8(int threads, int64_t rounds) {
#if defined(__AMX_INT8__)
  return tiles(threads, rounds, 4 * 2 * 16 * 16 * 64, false, [] {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  });
#else
  return 0;
#endif
}

double fma_f32(int threads, int64_t rounds) {
#if defined(__AVX512F__)
  return registers<24>(threads, rounds, 2 * 16, _mm512_set1_ps(0.999f), [](__m512& sum, __m512 factor) {
    sum = _mm512_fmadd_ps(sum, factor, factor);
  });
#elif defined(__FMA__)
  return registers<12>(threads, rounds, 2 * 8, _mm256_set1_ps(0.999f), [](__m256& sum, __m256 factor) {
    sum = _mm256_fmadd_ps(sum, factor, factor);
  });
#else
  return 0;
#endif
}

double dot_bf16(int threads, int64_t rounds) {
#if defined(__AVX512BF16__)
  return registers<24>(threads, rounds, 4 * 16, _mm512_set1_ps(0.999f), [](__m512& sum, __m512 factor) {
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(factor), reinterpret_cast<__m512bh>(factor));
  });
#else
  return 0;
#endif
}

double vnni_int8(int threads, int64_t rounds) {
#if defined(__AVX512VNNI__)
  return registers<12>(threads, rounds, 8 * 16, _mm512_set1_epi32(0x4f3b2a17), [](__m512i& sum, __m512i factor) {
    sum = _mm512_dpbusd_epi32(sum, factor, factor);
  });
#else
  return 0;
#endif
}

// Of the multiplications alone: what adds them up runs beside them.
double madd_int8(int threads, int64_t rounds) {
#if defined(__AVX512BW__)
  return registers<12>(threads, rounds, 4 * 16, _mm512_set1_epi32(0x4f3b2a17), [](__m512i& sum, __m512i factor) {
    sum = _mm512_madd_epi16(sum, factor);
  });
#elif defined(__AVX2__)
  return registers<12>(threads, rounds, 4 * 8, _mm256_set1_epi32(0x4f3b2a17), [](__m256i& sum, __m256i factor) {
    sum = _mm256_madd_epi16(sum, factor);
  });
#else
  return 0;
#endif
}

// Seconds to read `bytes` bytes once; each thread reads an equal part of them.
double read_all(int threads, const char* from, int64_t bytes) {
  const double start = now();
  volatile int64_t sink = 0;
#pragma omp parallel num_threads(threads)
  {
    const int64_t lines = bytes / 256, self = omp_get_thread_num(), count = omp_get_num_threads();
    const char* p = from + lines * self / count * 256;
    const char* const end = from + lines * (self + 1) / count * 256;
#if defined(__AVX512F__)
    __m512i all[4] = {};
    for (; p < end; p += 256) {
      for (int i = 0; i < 4; ++i) all[i] = _mm512_or_si512(all[i], _mm512_loadu_si512(p + 64 * i));
    }
    const __m512i any = _mm512_or_si512(_mm512_or_si512(all[0], all[1]), _mm512_or_si512(all[2], all[3]));
    if (_mm512_reduce_or_epi64(any) == 1) sink = 1;
#else
    __m256i all[4] = {};
    for (; p < end; p += 128) {
      for (int i = 0; i < 4; ++i) {
        all[i] = _mm256_or_si256(all[i], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * i)));
      }
    }
    const __m256i any = _mm256_or_si256(_mm256_or_si256(all[0], all[1]), _mm256_or_si256(all[2], all[3]));
    if (_mm256_extract_epi64(any, 0) == 1) sink = 1;
#endif
  }
  return now() - start;
}

}  // extern "C"
