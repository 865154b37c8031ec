// Ranges of torch's profiler, through torch's stable C interface: ATen/record_function.h alone takes longer to compile
// than the executor.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <c10/util/Exception.h>

namespace at {
TORCH_API bool hasCallbacks(); // whether anything records, as in ATen/record_function.h
}

namespace icpu {

// Recorded under a label for its lifetime, if the profiler runs.
class Range {
 public:
  explicit Range(const char* label) {
    TORCH_CHECK(aoti_record_function_start(label, nullptr, nullptr, 0, &handle_) == 0, "torch does not record ", label);
  }
  ~Range() { aoti_record_function_end(handle_); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  AtenRecordFunctionHandle handle_ = nullptr;
};

} // namespace icpu
