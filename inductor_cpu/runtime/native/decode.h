// From the Python dataclasses of ir/plan.py to the structs of plan.h.
#pragma once

#include "values.h"

#include <algorithm>
#include <unordered_map>

namespace icpu {

inline const std::unordered_map<std::string, Arithmetic> kArithmetic = {
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
  // `slot` and `reg` are the types Slot and Reg of the package that made the plan. Another copy of the package may be
  // imported by now, with types of its own.
  Decoder(PyObject* plan, PyObject* addresses, PyObject* slot, PyObject* reg)
      : source_(plan), addresses_(addresses), markers_{Ref::share(slot), Ref::share(reg)} {
    Ref ops = Ref::steal(PyImport_ImportModule("torch._ops"));
    overload_ = attribute(ops.get(), "OpOverload");
  }

  Plan decode() {
    const int64_t slots = as_int(attribute(source_, "slots").get());
    plan_.registers = as_int(attribute(source_, "registers").get());
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
    Ref results = attribute(source_, "results");
    for (PyObject* result : elements(results.get())) plan_.results.push_back(read_result(result));
    find_temporaries();
    return std::move(plan_);
  }

 private:
  void read_constants(int64_t slots) {
    slots_.ids.resize(slots);
    for (int64_t i = 0; i < slots; ++i) slots_.ids[i] = static_cast<SlotId>(i);
    plan_.slots = slots;
    Ref constants = attribute(source_, "constants");
    for (PyObject* pair : elements(constants.get())) {
      auto [slot, tensor] = std::pair(elements(pair)[0], elements(pair)[1]);
      if (!is_tensor(tensor)) fail(PyExc_TypeError, "a constant of the plan is not a tensor");
      const SlotId index = slots_.at(slot);
      if (index < 0) fail(PyExc_ValueError, "two constants in one slot");
      slots_.ids[index] = ~static_cast<SlotId>(plan_.constants.size());
      plan_.constants.push_back(as_tensor(tensor));
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
      const std::string op = as_string(attribute(from, "op").get());
      if (kArithmetic.count(op) == 0) fail(PyExc_ValueError, "unknown operation in Compute: " + op);
      out.emplace_back(Compute{reg(from), kArithmetic.at(op), field(from, "left"), field(from, "right")});
    } else if (type == "Alloc") {
      out.emplace_back(Alloc{written(from), dtype(from), ints(from, "sizes"), ints(from, "strides"),
                              as_string(attribute(from, "label").get())});
    } else if (type == "ArenaView") {
      out.emplace_back(
          ArenaView{written(from), field(from, "offset"), dtype(from), ints(from, "sizes"), ints(from, "strides")});
    } else if (type == "StridedView") {
      plan_.dispatches = true;
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
          Guard{as_string(attribute(from, "label").get()), field(from, "offset"), field(from, "bytes")});
    } else if (type == "Unguard") {
      out.emplace_back(Unguard{field(from, "offset")});
    } else if (type == "Free") {
      Free free;
      Ref listed = attribute(from, "slots");
      for (PyObject* item : elements(listed.get())) {
        const SlotId id = slots_.at(item);
        if (id >= 0) free.slots.push_back(id); // a constant lives as long as the plan
      }
      out.emplace_back(std::move(free));
    } else {
      fail(PyExc_ValueError, "unknown instruction " + type);
    }
  }

  KernelCall read_kernel(PyObject* from) {
    KernelCall call;
    Ref symbol = attribute(from, "symbol");
    PyObject* address = PyDict_GetItemWithError(addresses_, symbol.get());
    if (address == nullptr) fail(PyExc_KeyError, "no address for the kernel " + as_string(symbol.get()));
    call.function = reinterpret_cast<KernelFunction>(static_cast<uintptr_t>(as_int(address)));
    call.label = as_string(attribute(from, "label").get());
    Ref pointers = attribute(from, "pointers");
    for (PyObject* pointer : elements(pointers.get())) {
      if (markers_.is_slot(pointer)) {
        call.pointers.push_back({false, slots_.at(pointer), {}});
      } else if (PyObject_HasAttrString(pointer, "slot")) {
        call.pointers.push_back({false, slots_.at(attribute(pointer, "slot").get()), field(pointer, "offset")});
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

  ExternCall read_extern(PyObject* from) {
    Ref target = attribute(from, "target"), args = attribute(from, "args"), kwargs = attribute(from, "kwargs");
    std::vector<Target> outputs;
    Ref listed = attribute(from, "outputs");
    for (PyObject* output : elements(listed.get())) outputs.push_back(read_output(output));
    const std::string label = as_string(attribute(from, "label").get());
    const std::string reason = as_string(attribute(from, "reason").get());
    try {
      return {read_native(target.get(), args.get(), kwargs.get()), std::move(outputs), label, reason, ""};
    } catch (const NotNative& not_native) {
      PyTree kw{PyTree::Kind::dict, Ref::steal(PyTuple_New(elements(kwargs.get()).size())), 0, {}};
      Py_ssize_t position = 0;
      for (PyObject* pair : elements(kwargs.get())) {
        PyTuple_SET_ITEM(kw.object.get(), position++, Ref::share(elements(pair)[0]).release());
        kw.children.push_back(tree(elements(pair)[1]));
      }
      PyTree positional = tree(args.get());
      positional.kind = PyTree::Kind::tuple;
      return {PythonCall{target, std::move(positional), std::move(kw)}, std::move(outputs), label, reason, not_native.why};
    }
  }

  NativeCall read_native(PyObject* target, PyObject* args, PyObject* kwargs) {
    if (PyObject_IsInstance(target, overload_.get()) != 1) throw NotNative{"not an operator of the dispatcher"};
    Ref schema = attribute(target, "_schema");
    const c10::OperatorName name(
        as_string(attribute(schema.get(), "name").get()), as_string(attribute(schema.get(), "overload_name").get()));
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value()) throw NotNative{"the dispatcher does not know it"};
    std::unordered_map<std::string, PyObject*> named;
    for (PyObject* pair : elements(kwargs)) named[as_string(elements(pair)[0])] = elements(pair)[1];
    const auto positional = elements(args);
    NativeCall call{*op, !of_torch(name), {}};
    const ArgumentReader reader(markers_, slots_, plan_.registers);
    for (const c10::Argument& argument : op->schema().arguments()) {
      const size_t position = call.arguments.size();
      const auto given = named.find(argument.name());
      if (position < positional.size()) {
        call.arguments.push_back(reader.read(positional[position], argument.type(), argument.N()));
      } else if (given != named.end()) {
        call.arguments.push_back(reader.read(given->second, argument.type(), argument.N()));
        named.erase(given);
      } else if (argument.default_value().has_value()) {
        Argument constant;
        constant.constant = *argument.default_value();
        call.arguments.push_back(std::move(constant));
      } else {
        throw NotNative{"the argument " + argument.name() + " is missing"};
      }
    }
    if (!named.empty()) throw NotNative{"unknown argument " + named.begin()->first};
    if (positional.size() > call.arguments.size()) throw NotNative{"too many arguments"};
    return call;
  }

  static bool of_torch(const c10::OperatorName& name) {
    const std::string space(name.getNamespace().value_or(""));
    return space == "aten" || space == "prims" || space == "mkldnn" || space == "onednn" || space == "quantized";
  }

  PyTree tree(PyObject* value) const {
    if (markers_.is_slot(value)) return {PyTree::Kind::slot, {}, slots_.at(value), {}};
    if (markers_.is_reg(value)) return {PyTree::Kind::reg, {}, reg_index(value, plan_.registers), {}};
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
    if (markers_.is_reg(output)) return {Target::Kind::reg, reg_index(output, plan_.registers)};
    return {Target::Kind::slot, writable(slots_.at(output))};
  }

  Result read_result(PyObject* result) const {
    if (markers_.is_slot(result)) return {Result::Kind::slot, slots_.at(result), {}};
    if (markers_.is_reg(result)) return {Result::Kind::reg, reg_index(result, plan_.registers), {}};
    return {Result::Kind::object, 0, Ref::share(result)};
  }

  Int integer(PyObject* value) const {
    if (markers_.is_reg(value)) return {0, reg_index(value, plan_.registers)};
    return {as_int(value), -1};
  }

  Int field(PyObject* from, const char* name) const { return integer(attribute(from, name).get()); }

  Ints ints(PyObject* from, const char* name) const {
    Ref listed = attribute(from, name);
    Ints values;
    for (PyObject* item : elements(listed.get())) values.push_back(integer(item));
    return values;
  }

  static int64_t number(PyObject* from, const char* name) { return as_int(attribute(from, name).get()); }
  int32_t reg(PyObject* from) const { return reg_index(attribute(from, "reg").get(), plan_.registers); }
  SlotId slot(PyObject* from, const char* name) const { return slots_.at(attribute(from, name).get()); }
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
  Markers markers_;
  Ref overload_;
  SlotMap slots_;
  Plan plan_;
};

} // namespace icpu
