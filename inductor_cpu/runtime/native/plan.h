// The plan as C++ values: what ir/plan.py says, decoded once. One struct per instruction.
#pragma once

#include "operators.h"

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace icpu {

using KernelFunction = int64_t (*)(void* const* pointers, const int64_t* ints);

// An integer: a constant, or the value of a register.
struct Int {
  int64_t value = 0;
  int32_t reg = -1;
};
using Ints = std::vector<Int>;

struct LoadInput {
  SlotId slot;
  int64_t position;
};
struct LoadInt {
  int32_t reg;
  int64_t position;
};
struct SizeOf {
  int32_t reg;
  SlotId slot;
  int64_t dim;
};
struct StrideOf {
  int32_t reg;
  SlotId slot;
  int64_t dim;
};
enum class Arithmetic { add, sub, mul, floordiv, mod, min, max, eq, ne, lt, le };
struct Compute {
  int32_t reg;
  Arithmetic op;
  Int left, right;
};
struct AcquireArena {
  Int bytes;
};
struct Alloc {
  SlotId slot;
  at::ScalarType dtype;
  Ints sizes, strides;
  std::string label;
};
struct ArenaView {
  SlotId slot;
  Int offset;
  at::ScalarType dtype;
  Ints sizes, strides;
};
struct StridedView {
  SlotId slot, base;
  Ints sizes, strides;
  Int offset;
};
struct Pointer {
  bool in_arena;
  SlotId slot; // unless in_arena
  Int offset; // bytes
};
struct KernelCall {
  KernelFunction function;
  std::string label;
  std::vector<Pointer> pointers;
  Ints ints;
  std::vector<int64_t> fixed_ints; // `ints`, when no register is among them
  bool fixed;
};
struct Restride {
  SlotId slot;
  Ints sizes, strides;
  std::optional<at::ScalarType> dtype;
};
struct Guard {
  std::string label;
  Int offset, bytes;
};
struct Unguard {
  Int offset;
};
struct Free {
  std::vector<SlotId> slots;
};

// Arguments for a Python callable: a tree whose leaves are Python objects, slots and registers.
struct PyTree {
  enum class Kind { object, slot, reg, tuple, list, dict };
  Kind kind = Kind::object;
  Ref object; // object; for dict, the tuple of its keys
  int32_t index = 0;
  std::vector<PyTree> children;
};

struct PythonCall {
  Ref callable;
  PyTree args, kwargs;
};

struct ExternCall {
  PythonCall python; // while there is no `native`
  PreparedCall native;
  bool of_program; // not one of torch's own operators
  Outputs outputs;
  std::string reason;
  std::string why_python; // empty for a native call
  Ref source; // the instruction, until the operators library has read it; touched with the GIL only
};

struct Result {
  enum class Kind { slot, reg, object };
  Kind kind;
  int32_t index = 0;
  Ref object;
};

using Instruction = std::variant<
    SizeOf,
    StrideOf,
    Compute,
    AcquireArena,
    Alloc,
    ArenaView,
    StridedView,
    KernelCall,
    ExternCall,
    Restride,
    Guard,
    Unguard,
    Free>;

// Instructions between calls of operators, which have parallel regions of their own. shared: how often its kernels shared
// work among threads at the last call that has ended.
struct Segment {
  Segment(size_t begin, size_t end) : begin(begin), end(end) {}
  size_t begin, end;
  mutable std::atomic<int64_t> shared{0};
};

struct Plan {
  std::vector<at::TensorBase> constants;
  std::vector<LoadInput> tensor_inputs;
  std::vector<LoadInt> int_inputs;
  std::vector<Instruction> instructions;
  std::deque<Segment> segments; // all instructions, in their order
  std::vector<Result> results;
  std::vector<SlotId> temporaries; // slots that are neither input nor result
  size_t slots = 0;
  size_t most_pointers = 0;
  size_t most_ints = 0;
  size_t redzone = 0; // bytes; 0: no red zones
  Names names; // what operators' arguments are made of
  bool waiting = false; // for the operators library; touched with the GIL only
  bool dispatches = false; // whether any instruction may call the dispatcher
  bool force_profile = false;
};

} // namespace icpu
