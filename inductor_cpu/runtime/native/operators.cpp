// The extension module `icpu_operators`: prepares operators and calls them through torch's dispatcher.
#include "arguments.h"
#include "operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace icpu {
namespace {

static_assert(sizeof(at::Tensor) == sizeof(at::TensorBase), "`whole` in run.h takes the one for the other");

class DispatcherCall final : public NativeCall {
 public:
  DispatcherCall(c10::OperatorHandle op, std::vector<Argument> arguments)
      : op_(std::move(op)), arguments_(std::move(arguments)) {}

  void run(Values& values, const Outputs& outputs) const override {
    using Stack = std::vector<c10::IValue>;
    if (!values.scratch) values.scratch = std::make_shared<Stack>();
    Stack& stack = *static_cast<Stack*>(values.scratch.get());
    stack.clear();
    for (const Argument& argument : arguments_) stack.push_back(evaluate(argument, values));
    op_.callBoxed(stack);
    Receiver receiver(values, outputs);
    for (c10::IValue& value : stack) take(std::move(value), receiver);
    receiver.finish();
    stack.clear();
  }

 private:
  static c10::IValue evaluate(const Argument& argument, const Values& values) {
    switch (argument.kind) {
      case Argument::Kind::constant: return argument.constant;
      case Argument::Kind::tensor: {
        const at::TensorBase& value = values.tensor(argument.index);
        return value.defined() ? c10::IValue(at::Tensor(value)) : c10::IValue();
      }
      case Argument::Kind::integer: return c10::IValue(values.regs[argument.index]);
      case Argument::Kind::real: return c10::IValue(static_cast<double>(values.regs[argument.index]));
      case Argument::Kind::boolean: return c10::IValue(values.regs[argument.index] != 0);
      case Argument::Kind::list: {
        c10::impl::GenericList list(argument.element);
        list.reserve(argument.children.size());
        for (const Argument& child : argument.children) list.push_back(evaluate(child, values));
        return c10::IValue(std::move(list));
      }
    }
    TORCH_INTERNAL_ASSERT(false);
  }

  static void take(c10::IValue value, Receiver& receiver) {
    if (value.isTensor()) {
      receiver.put(std::move(value).toTensor());
    } else if (value.isNone()) {
      receiver.put(at::TensorBase());
    } else if (value.isBool()) {
      receiver.put(int64_t{value.toBool()});
    } else if (value.isInt()) {
      receiver.put(value.toInt());
    } else if (value.isSymInt()) {
      receiver.put(value.toSymInt().guard_int(__FILE__, __LINE__));
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) take(item, receiver);
    } else {
      receiver.drop(value.tagKind());
    }
  }

  c10::OperatorHandle op_;
  std::vector<Argument> arguments_;
};

std::vector<Argument> read_arguments(
    const c10::FunctionSchema& schema, PyObject* args, PyObject* kwargs, const ArgumentReader& reader) {
  std::unordered_map<std::string, PyObject*> named;
  for (PyObject* pair : elements(kwargs)) named[as_string(elements(pair)[0])] = elements(pair)[1];
  const auto positional = elements(args);
  std::vector<Argument> arguments;
  for (const c10::Argument& argument : schema.arguments()) {
    const size_t position = arguments.size();
    const auto given = named.find(argument.name());
    if (position < positional.size()) {
      arguments.push_back(reader.read(positional[position], argument.type(), argument.N()));
    } else if (given != named.end()) {
      arguments.push_back(reader.read(given->second, argument.type(), argument.N()));
      named.erase(given);
    } else if (argument.default_value().has_value()) {
      Argument constant;
      constant.constant = *argument.default_value();
      arguments.push_back(std::move(constant));
    } else {
      throw NotNative{"the argument " + argument.name() + " is missing"};
    }
  }
  if (!named.empty()) throw NotNative{"unknown argument " + named.begin()->first};
  if (positional.size() > arguments.size()) throw NotNative{"too many arguments"};
  return arguments;
}

// See `Prepare`.
NativeCall* prepare(PyObject* instruction, const Names& names, std::string& why) {
  return guarded<NativeCall*>(nullptr, [&]() -> NativeCall* {
    Ref target = attribute(instruction, "target");
    Ref args = attribute(instruction, "args"), kwargs = attribute(instruction, "kwargs");
    Ref schema = attribute(target.get(), "_schema");
    const c10::OperatorName name(
        as_string(attribute(schema.get(), "name").get()), as_string(attribute(schema.get(), "overload_name").get()));
    try {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (!op.has_value()) throw NotNative{"the dispatcher does not know it"};
      return new DispatcherCall(*op, read_arguments(op->schema(), args.get(), kwargs.get(), ArgumentReader(names)));
    } catch (const NotNative& not_native) {
      why = not_native.why;
      return nullptr;
    }
  });
}

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "icpu_operators", "Operators for the native executor of icpu.", -1, nullptr, nullptr, nullptr,
    nullptr, nullptr};

} // namespace
} // namespace icpu

PyMODINIT_FUNC __attribute__((visibility("default"))) PyInit_icpu_operators() {
  using namespace icpu;
  return guarded<PyObject*>(nullptr, []() -> PyObject* {
    Ref module = Ref::steal(PyModule_Create(&module_definition));
    Ref capsule = Ref::steal(PyCapsule_New(reinterpret_cast<void*>(&prepare), kPrepareCapsule, nullptr));
    if (PyModule_AddObjectRef(module.get(), "prepare", capsule.get()) != 0) throw PythonError();
    return module.release();
  });
}
