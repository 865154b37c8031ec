// The plan as C++ values: what ir/plan.py says, decoded once. One struct per instruction.
#pragma once

#include "python.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <variant>
#include <vector>

namespace icpu {

using KernelFunction = int64_t (*)(void* const* pointers, const int64_t* ints);

// A tensor slot; negative values ~i mean constant i of the plan, which calls share and never write.
using SlotId = int32_t;

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

// One argument of an operator: a prebuilt value, or a recipe that needs the slots and registers of a call.
struct Argument {
  enum class Kind { constant, tensor, integer, real, boolean, list };
  Kind kind = Kind::constant;
  c10::IValue constant;
  int32_t index = 0; // slot or register
  std::vector<Argument> children; // list
  c10::TypePtr element; // list
};

struct NativeCall {
  c10::OperatorHandle op;
  bool of_program; // not one of torch's own
  std::vector<Argument> arguments;
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

struct Target {
  enum class Kind { none, slot, reg };
  Kind kind;
  int32_t index;
};

struct ExternCall {
  std::variant<NativeCall, PythonCall> call;
  std::vector<Target> outputs;
  std::string label;
  std::string reason;
  std::string why_python; // empty for a native call
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

struct Plan {
  std::vector<at::Tensor> constants;
  std::vector<LoadInput> tensor_inputs;
  std::vector<LoadInt> int_inputs;
  std::vector<Instruction> instructions;
  std::vector<Result> results;
  std::vector<SlotId> temporaries; // slots that are neither input nor result
  size_t slots = 0;
  size_t registers = 0;
  size_t most_pointers = 0;
  size_t most_ints = 0;
  size_t redzone = 0; // bytes; 0: no red zones
  bool dispatches = false; // whether any instruction may call the dispatcher
  bool force_profile = false;
};

} // namespace icpu
