// The prelude of every generated kernel. Compile with the CPU_CAPABILITY_* macro of the target (AVX512, AVX2, DEFAULT).
#pragma once

#include "base.h"
#include "parallel.h"
#include "scalar_math.h"

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#include "best_block.h"
#include "loops.h"
#include "vec.h"
#include "vec_convert.h"
#include "vec_division.h"
#include "vec_gather.h"
#include "vec_index.h"
#include "vec_math.h"
#include "vec_memory.h"
#include "vec_ops.h"
#include "vec_order.h"
#include "vec_record_loads.h"
#include "vec_records.h"
#include "vec_strided.h"
#include "vec_tile.h"
#endif

#include "reduce.h"
