// The names that a plan of ir/plan.py gives to values of a call, and what stands for them in plan.h.
#pragma once

#include "python.h"

#include <vector>

namespace icpu {

// A tensor slot; negative values ~i mean constant i of the plan, which calls share and never write.
using SlotId = int32_t;

struct Names {
  // The types Slot and Reg of the package that made the plan. Another copy of the package may be imported by now, with
  // types of its own.
  Ref slot, reg;
  std::vector<SlotId> ids; // by slot number
  size_t registers = 0;

  bool is_slot(PyObject* object) const { return reinterpret_cast<PyObject*>(Py_TYPE(object)) == slot.get(); }
  bool is_reg(PyObject* object) const { return reinterpret_cast<PyObject*>(Py_TYPE(object)) == reg.get(); }

  SlotId slot_id(PyObject* object) const {
    const int64_t index = as_int(attribute(object, "index").get());
    if (index < 0 || index >= static_cast<int64_t>(ids.size())) fail(PyExc_ValueError, "slot number out of range");
    return ids[index];
  }
  int32_t reg_index(PyObject* object) const {
    const int64_t index = as_int(attribute(object, "index").get());
    if (index < 0 || index >= static_cast<int64_t>(registers)) fail(PyExc_ValueError, "register number out of range");
    return static_cast<int32_t>(index);
  }
};

} // namespace icpu
