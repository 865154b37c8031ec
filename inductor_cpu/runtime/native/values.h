// The values of one call of a plan, and how they get the results of an operator.
#pragma once

#include "names.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace icpu {

class Values {
 public:
  Values(const std::vector<at::TensorBase>& constants, size_t slot_count, size_t registers)
      : slots(slot_count), regs(registers, 0), constants_(constants) {}

  const at::TensorBase& tensor(SlotId id) const { return id >= 0 ? slots[id] : constants_[~id]; }

  c10::SmallVector<at::TensorBase, 32> slots;
  c10::SmallVector<int64_t, 32> regs;
  std::shared_ptr<void> scratch; // the operators library's, for the length of the call

 private:
  const std::vector<at::TensorBase>& constants_;
};

// Where a result of an operator goes.
struct Target {
  enum class Kind { none, slot, reg };
  Kind kind;
  int32_t index;
};

struct Outputs {
  std::string label; // of the operator
  std::vector<Target> targets;
};

// Takes the results of one operator, one after another.
class Receiver {
 public:
  Receiver(Values& values, const Outputs& outputs) : values_(values), outputs_(outputs) {}

  void put(at::TensorBase value) {
    const Target& to = next();
    TORCH_CHECK(to.kind != Target::Kind::reg, outputs_.label, " returned a tensor where the plan has an integer");
    if (to.kind == Target::Kind::slot) values_.slots[to.index] = std::move(value);
  }

  void put(int64_t value) {
    const Target& to = next();
    TORCH_CHECK(to.kind != Target::Kind::slot, outputs_.label, " returned a number where the plan has a tensor");
    if (to.kind == Target::Kind::reg) values_.regs[to.index] = value;
  }

  // A value of another type, which must not be needed.
  void drop(const std::string& type) {
    const bool dropped = next().kind == Target::Kind::none;
    TORCH_CHECK(dropped, outputs_.label, " returned a ", type, ", which a plan cannot hold");
  }

  void finish() const {
    const size_t count = outputs_.targets.size();
    TORCH_CHECK(taken_ == count, outputs_.label, " returned ", taken_, " results, and the plan has ", count);
  }

 private:
  const Target& next() {
    const size_t count = outputs_.targets.size();
    TORCH_CHECK(taken_ < count, outputs_.label, " returned more than the ", count, " results of the plan");
    return outputs_.targets[taken_++];
  }

  Values& values_;
  const Outputs& outputs_;
  size_t taken_ = 0;
};

} // namespace icpu
