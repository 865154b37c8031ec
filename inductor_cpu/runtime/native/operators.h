// What the executor and the operators library know of each other.
//
// Calls through torch's dispatcher are a library of their own because its headers take longer to compile than all of
// the executor, for which the first call of a program waits. Nobody waits for the operators library.
#pragma once

#include "values.h"

#include <atomic>
#include <string>

namespace icpu {

// An operator with prepared arguments.
class NativeCall {
 public:
  virtual ~NativeCall() = default;
  // Without the GIL. Throws what the operator throws.
  virtual void run(Values& values, const Outputs& outputs) const = 0;
};

// With the GIL: prepares the operator of an ExternCall of ir/plan.py. Null with a Python error set is a failure; null
// without one means that the call has no native form, and `why` says why.
using Prepare = NativeCall* (*)(PyObject* instruction, const Names& names, std::string& why);

// The name of the capsule in which the operators library hands over its `Prepare`.
constexpr const char* kPrepareCapsule = "icpu_operators.prepare";

// Owns a NativeCall, or has none yet. It may be set while other threads run the plan.
class PreparedCall {
 public:
  PreparedCall() = default;
  PreparedCall(PreparedCall&& other) noexcept : call_(other.call_.exchange(nullptr)) {}
  ~PreparedCall() { delete get(); }

  const NativeCall* get() const { return call_.load(std::memory_order_acquire); }
  void set(const NativeCall* call) { call_.store(call, std::memory_order_release); }

 private:
  std::atomic<const NativeCall*> call_{nullptr};
};

} // namespace icpu
