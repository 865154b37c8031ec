// From the Python dataclasses of ir/plan.py to the structs of plan.h.
#pragma once

#include "plan.h"
#include "team.h"

#include <torch/csrc/Dtype.h>

#include <algorithm>
#include <string>
#include <utility>

namespace icpu {

constexpr std::pair<const char*, Arithmetic> kArithmetic[] = {
    {"add", Arithmetic::add},
    {"sub", Arithmetic::sub},
    {"mul", Arithmetic::mul},
    {"floordiv", Arithmetic::floordiv},
    {"mod", Arithmetic::mod},
    {"min", Arithmetic::min},
    {"max", Arithmetic::max},
    {"eq", Arithmetic::eq},
    {"ne", Arithmetic::ne},
    {"lt", Arithmetic::lt},
    {"le", Arithmetic::le}};

class Decoder {
 public:
  Decoder(PyObject* plan, PyObject* addresses, PyObject* slot, PyObject* reg) : source_(plan), addresses_(addresses) {
    plan_.names.slot = Ref::share(slot);
    plan_.names.reg = Ref::share(reg);
    overload_ = attribute(Ref::steal(PyImport_ImportModule("torch._ops")).get(), "OpOverload");
    Ref torch = Ref::steal(PyImport_ImportModule("torch._C"));
    find_operator_ = attribute(torch.get(), "_dispatch_find_schema_or_throw");
    call_operator_ = attribute(torch.get(), "_dispatch_call_boxed");
  }

  Plan decode() {
    const int64_t slots = as_int(attribute(source_, "slots").get());
    plan_.names.registers = as_int(attribute(source_, "registers").get());
    read_constants(slots);
    plan_.redzone = as_int(attribute(source_, "redzone").get());
    const Int arena = integer(attribute(source_, "arena_bytes").get());
    const size_t arena_at = as_int(attribute(source_, "arena_at").get());
    Ref instructions = attribute(source_, "instructions");
    size_t position = 0;
    for (PyObject* instruction : elements(instructions.get())) {
      if (position++ == arena_at) plan_.instructions.emplace_back(AcquireArena{arena});
      read_instruction(instruction);
    }
    find_segments();
    Ref results = attribute(source_, "results");
    for (PyObject* result : elements(results.get())) plan_.results.push_back(read_result(result));
    find_temporaries();
    return std::move(plan_);
  }

 private:
  void read_constants(int64_t slots) {
    plan_.names.ids.resize(slots);
    for (int64_t i = 0; i < slots; ++i) plan_.names.ids[i] = static_cast<SlotId>(i);
    plan_.slots = slots;
    Ref constants = attribute(source_, "constants");
    for (PyObject* pair : elements(constants.get())) {
      auto [slot, tensor] = std::pair(elements(pair)[0], elements(pair)[1]);
      if (!is_tensor(tensor)) fail(PyExc_TypeError, "a constant of the plan is not a tensor");
      const SlotId index = plan_.names.slot_id(slot);
      if (index < 0) fail(PyExc_ValueError, "two constants in one slot");
      plan_.names.ids[index] = ~static_cast<SlotId>(plan_.constants.size());
      plan_.constants.push_back(as_tensor(tensor));
    }
  }

  void find_segments() {
    const auto& all = plan_.instructions;
    const auto calls_operator = [](const Instruction& instruction) {
      return std::holds_alternative<ExternCall>(instruction) || std::holds_alternative<Restride>(instruction);
    };
    for (size_t begin = 0, end; begin < all.size(); begin = end) {
      for (end = begin + 1; end < all.size() && calls_operator(all[end]) == calls_operator(all[begin]);) ++end;
      plan_.segments.emplace_back(begin, end);
    }
  }

  void find_temporaries() {
    std::vector<bool> temporary(plan_.slots, true);
    for (const LoadInput& input : plan_.tensor_inputs) temporary[input.slot] = false;
    for (const Result& result : plan_.results) {
      if (result.kind == Result::Kind::slot && result.index >= 0) temporary[result.index] = false;
    }
    for (size_t i = 0; i < plan_.slots; ++i) {
      if (temporary[i]) plan_.temporaries.push_back(static_cast<SlotId>(i));
    }
  }

  void read_instruction(PyObject* from) {
    const std::string type = as_string(attribute(reinterpret_cast<PyObject*>(Py_TYPE(from)), "__name__").get());
    auto& out = plan_.instructions;
    if (type == "LoadInput") {
      plan_.tensor_inputs.push_back({written(from), number(from, "position")});
    } else if (type == "LoadInt") {
      plan_.int_inputs.push_back({reg(from), number(from, "position")});
    } else if (type == "SizeOf") {
      out.emplace_back(SizeOf{reg(from), slot(from, "slot"), number(from, "dim")});
    } else if (type == "StrideOf") {
      out.emplace_back(StrideOf{reg(from), slot(from, "slot"), number(from, "dim")});
    } else if (type == "Compute") {
      out.emplace_back(Compute{reg(from), arithmetic(from), field(from, "left"), field(from, "right")});
    } else if (type == "Alloc") {
      out.emplace_back(Alloc{written(from), dtype(from), ints(from, "sizes"), ints(from, "strides"),
                              text(from, "label")});
    } else if (type == "ArenaView") {
      out.emplace_back(
          ArenaView{written(from), field(from, "offset"), dtype(from), ints(from, "sizes"), ints(from, "strides")});
    } else if (type == "StridedView") {
      out.emplace_back(StridedView{
          written(from), slot(from, "base"), ints(from, "sizes"), ints(from, "strides"), field(from, "offset")});
    } else if (type == "KernelCall") {
      out.emplace_back(read_kernel(from));
    } else if (type == "ExternCall") {
      plan_.dispatches = true;
      out.emplace_back(read_extern(from));
    } else if (type == "Restride") {
      plan_.dispatches = true;
      const bool read = attribute(from, "dtype").get() != Py_None;
      out.emplace_back(Restride{written(from), ints(from, "sizes"), ints(from, "strides"),
                                read ? std::optional(dtype(from)) : std::nullopt});
    } else if (type == "Guard") {
      out.emplace_back(
          Guard{text(from, "label"), field(from, "offset"), field(from, "bytes")});
    } else if (type == "Unguard") {
      out.emplace_back(Unguard{field(from, "offset")});
    } else if (type == "Free") {
      Free free;
      Ref listed = attribute(from, "slots");
      for (PyObject* item : elements(listed.get())) {
        const SlotId id = plan_.names.slot_id(item);
        if (id >= 0) free.slots.push_back(id); // a constant lives as long as the plan
      }
      out.emplace_back(std::move(free));
    } else {
      fail(PyExc_ValueError, "unknown instruction " + type);
    }
  }

  static Arithmetic arithmetic(PyObject* from) {
    const std::string op = text(from, "op");
    for (const auto& [name, value] : kArithmetic) {
      if (op == name) return value;
    }
    fail(PyExc_ValueError, "unknown operation in Compute: " + op);
  }

  KernelCall read_kernel(PyObject* from) {
    KernelCall call;
    Ref symbol = attribute(from, "symbol");
    PyObject* address = PyDict_GetItemWithError(addresses_, symbol.get());
    if (address == nullptr) fail(PyExc_KeyError, "no address for the kernel " + as_string(symbol.get()));
    call.function = reinterpret_cast<KernelFunction>(static_cast<uintptr_t>(as_int(address)));
    Team::lend_to(reinterpret_cast<const void*>(call.function));
    call.label = text(from, "label");
    Ref pointers = attribute(from, "pointers");
    for (PyObject* pointer : elements(pointers.get())) {
      if (plan_.names.is_slot(pointer)) {
        call.pointers.push_back({false, plan_.names.slot_id(pointer), {}});
      } else if (PyObject_HasAttrString(pointer, "slot")) {
        const SlotId base = plan_.names.slot_id(attribute(pointer, "slot").get());
        call.pointers.push_back({false, base, field(pointer, "offset")});
      } else {
        call.pointers.push_back({true, 0, field(pointer, "offset")});
      }
    }
    call.ints = ints(from, "ints");
    call.fixed = std::all_of(call.ints.begin(), call.ints.end(), [](const Int& i) { return i.reg < 0; });
    for (const Int& i : call.ints) call.fixed_ints.push_back(i.value);
    plan_.most_pointers = std::max(plan_.most_pointers, call.pointers.size());
    plan_.most_ints = std::max(plan_.most_ints, call.ints.size());
    return call;
  }

  // The call as Python makes it, which serves until the operators library has prepared it, and for what has no native
  // form.
  ExternCall read_extern(PyObject* from) {
    ExternCall call;
    call.outputs.label = text(from, "label");
    call.reason = text(from, "reason");
    Ref outputs = attribute(from, "outputs"), args = attribute(from, "args"), kwargs = attribute(from, "kwargs");
    for (PyObject* output : elements(outputs.get())) call.outputs.targets.push_back(read_output(output));
    call.python.args = tree(args.get());
    call.python.args.kind = PyTree::Kind::tuple;
    call.python.kwargs = {PyTree::Kind::dict, Ref::steal(PyTuple_New(elements(kwargs.get()).size())), 0, {}};
    Py_ssize_t position = 0;
    for (PyObject* pair : elements(kwargs.get())) {
      PyTuple_SET_ITEM(call.python.kwargs.object.get(), position++, Ref::share(elements(pair)[0]).release());
      call.python.kwargs.children.push_back(tree(elements(pair)[1]));
    }
    read_target(attribute(from, "target"), call);
    if (call.why_python.empty()) {
      call.why_python = "the operators library is not built yet";
      call.source = Ref::share(from);
      plan_.waiting = true;
    }
    return call;
  }

  // An operator of the program is called as C++ calls it, below its OpOverload, which would look for modes of
  // __torch_function__ before. Only the OpOverload of one of torch's takes numbers for tensors.
  void read_target(Ref target, ExternCall& call) const {
    call.of_program = true;
    call.python.callable = target;
    if (PyObject_IsInstance(target.get(), overload_.get()) != 1) {
      call.why_python = "not an operator of the dispatcher";
      return;
    }
    Ref schema = attribute(target.get(), "_schema");
    Ref name = attribute(schema.get(), "name"), overload = attribute(schema.get(), "overload_name");
    PyObject* handle = PyObject_CallFunctionObjArgs(find_operator_.get(), name.get(), overload.get(), nullptr);
    if (handle == nullptr) {
      PyErr_Clear();
      call.why_python = "the dispatcher does not know it";
      return;
    }
    Ref first = Ref::steal(handle);
    call.of_program = !of_torch(as_string(name.get()));
    if (!call.of_program) return;
    call.python.callable = call_operator_;
    auto& arguments = call.python.args.children;
    arguments.insert(arguments.begin(), {PyTree::Kind::object, std::move(first), 0, {}});
  }

  static bool of_torch(const std::string& name) {
    const std::string space = name.substr(0, name.find("::"));
    return space == "aten" || space == "prims" || space == "mkldnn" || space == "onednn" || space == "quantized";
  }

  PyTree tree(PyObject* value) const {
    if (plan_.names.is_slot(value)) return {PyTree::Kind::slot, {}, plan_.names.slot_id(value), {}};
    if (plan_.names.is_reg(value)) return {PyTree::Kind::reg, {}, plan_.names.reg_index(value), {}};
    // Named tuples and other subclasses are constants.
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
      PyTree node{PyTuple_CheckExact(value) ? PyTree::Kind::tuple : PyTree::Kind::list, {}, 0, {}};
      for (PyObject* item : elements(value)) node.children.push_back(tree(item));
      return node;
    }
    if (PyDict_CheckExact(value)) {
      Ref keys = Ref::steal(PyDict_Keys(value)), values = Ref::steal(PyDict_Values(value));
      PyTree node{PyTree::Kind::dict, Ref::steal(PyList_AsTuple(keys.get())), 0, {}};
      for (PyObject* item : elements(values.get())) node.children.push_back(tree(item));
      return node;
    }
    return {PyTree::Kind::object, Ref::share(value), 0, {}};
  }

  Target read_output(PyObject* output) const {
    if (output == Py_None) return {Target::Kind::none, 0};
    if (plan_.names.is_reg(output)) return {Target::Kind::reg, plan_.names.reg_index(output)};
    return {Target::Kind::slot, writable(plan_.names.slot_id(output))};
  }

  Result read_result(PyObject* result) const {
    if (plan_.names.is_slot(result)) return {Result::Kind::slot, plan_.names.slot_id(result), {}};
    if (plan_.names.is_reg(result)) return {Result::Kind::reg, plan_.names.reg_index(result), {}};
    return {Result::Kind::object, 0, Ref::share(result)};
  }

  Int integer(PyObject* value) const {
    if (plan_.names.is_reg(value)) return {0, plan_.names.reg_index(value)};
    return {as_int(value), -1};
  }

  Int field(PyObject* from, const char* name) const { return integer(attribute(from, name).get()); }

  Ints ints(PyObject* from, const char* name) const {
    Ref listed = attribute(from, name);
    Ints values;
    for (PyObject* item : elements(listed.get())) values.push_back(integer(item));
    return values;
  }

  static std::string text(PyObject* from, const char* name) { return as_string(attribute(from, name).get()); }
  static int64_t number(PyObject* from, const char* name) { return as_int(attribute(from, name).get()); }
  int32_t reg(PyObject* from) const { return plan_.names.reg_index(attribute(from, "reg").get()); }
  SlotId slot(PyObject* from, const char* name) const { return plan_.names.slot_id(attribute(from, name).get()); }
  SlotId written(PyObject* from) const { return writable(slot(from, "slot")); }

  static SlotId writable(SlotId id) {
    if (id < 0) fail(PyExc_ValueError, "an instruction writes to the slot of a constant");
    return id;
  }

  static at::ScalarType dtype(PyObject* from) {
    Ref value = attribute(from, "dtype");
    if (!THPDtype_Check(value.get())) fail(PyExc_TypeError, "dtype is not a torch.dtype");
    return reinterpret_cast<THPDtype*>(value.get())->scalar_type;
  }

  PyObject* source_;
  PyObject* addresses_;
  Ref overload_, find_operator_, call_operator_;
  Plan plan_;
};

} // namespace icpu
