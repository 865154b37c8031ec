// Stands before the compiler's own header on the include path: instructions that a CPU lacks, in plain C++.
//
// Preconditions: AVX2, FMA and F16C; optimization, without which GCC's intrinsics with constants are macros.
#pragma once

#include_next <immintrin.h>

#if !defined(CPU_CAPABILITY_AVX512)
#include "avx_vnni.h"
#else
#if !defined(__AVX512F__)
#include "avx512.h"
#include "sleef.h"
#define __AVX512F__ 1
#define __AVX512VNNI__ 1
#endif
#include "tiles.h"
#ifndef __AVX512BF16__
#define __AVX512BF16__ 1
#endif
#endif
