// Arguments of operators, from Python constants to IValues, as the operator's schema asks. Done once for each plan.
#pragma once

#include "names.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace icpu {

// One argument of an operator: a prebuilt value, or a recipe that needs the slots and registers of a call.
struct Argument {
  enum class Kind { constant, tensor, integer, real, boolean, list };
  Kind kind = Kind::constant;
  c10::IValue constant;
  int32_t index = 0; // slot or register
  std::vector<Argument> children; // list
  c10::TypePtr element; // list
};

// Why a value has no native form.
struct NotNative {
  std::string why;
};

class ArgumentReader {
 public:
  explicit ArgumentReader(const Names& names) : names_(names) {}

  // `count` is N of a type such as int[2], for which a single number stands for N equal ones.
  Argument read(PyObject* value, const c10::TypePtr& type, std::optional<int32_t> count = std::nullopt) const {
    if (type->kind() == c10::TypeKind::OptionalType) {
      if (value == Py_None) return constant(c10::IValue());
      return read(value, type->expectRef<c10::OptionalType>().getElementType(), count);
    }
    if (type->kind() == c10::TypeKind::ListType) {
      return read_list(value, type->expectRef<c10::ListType>().getElementType(), count);
    }
    if (names_.is_slot(value)) {
      if (type->kind() != c10::TypeKind::TensorType) throw NotNative{"a tensor where " + type->str() + " is expected"};
      return recipe(Argument::Kind::tensor, names_.slot_id(value));
    }
    if (names_.is_reg(value)) return recipe(register_kind(type), names_.reg_index(value));
    return constant(read_constant(value, type));
  }

 private:
  static Argument constant(c10::IValue value) {
    Argument argument;
    argument.constant = std::move(value);
    return argument;
  }

  static Argument recipe(Argument::Kind kind, int32_t index) {
    Argument argument;
    argument.kind = kind;
    argument.index = index;
    return argument;
  }

  static Argument::Kind register_kind(const c10::TypePtr& type) {
    switch (type->kind()) {
      case c10::TypeKind::IntType:
      case c10::TypeKind::NumberType:
        return Argument::Kind::integer;
      case c10::TypeKind::FloatType:
        return Argument::Kind::real;
      case c10::TypeKind::BoolType:
        return Argument::Kind::boolean;
      default:
        throw NotNative{"an integer where " + type->str() + " is expected"};
    }
  }

  Argument read_list(PyObject* value, const c10::TypePtr& element, std::optional<int32_t> count) const {
    Argument list;
    list.kind = Argument::Kind::list;
    list.element = element;
    if (PyTuple_Check(value) || PyList_Check(value)) {
      for (PyObject* item : elements(value)) list.children.push_back(read(item, element));
    } else if (count.has_value()) {
      list.children.assign(*count, read(value, element));
    } else {
      throw NotNative{"one value where a list of " + element->str() + " is expected"};
    }
    for (const Argument& child : list.children) {
      if (child.kind != Argument::Kind::constant) return list;
    }
    c10::impl::GenericList values(element);
    for (const Argument& child : list.children) values.push_back(child.constant);
    return constant(c10::IValue(std::move(values)));
  }

  static c10::IValue read_constant(PyObject* value, const c10::TypePtr& type) {
    switch (type->kind()) {
      case c10::TypeKind::IntType:
        return read_int(value);
      case c10::TypeKind::FloatType:
        if (PyFloat_Check(value) || PyLong_Check(value)) return c10::IValue(checked_double(value));
        break;
      case c10::TypeKind::BoolType:
        if (PyBool_Check(value)) return c10::IValue(value == Py_True);
        break;
      case c10::TypeKind::NumberType:
        return read_number(value);
      case c10::TypeKind::StringType:
        if (PyUnicode_Check(value)) return c10::IValue(as_string(value));
        break;
      case c10::TypeKind::DeviceObjType:
        if (THPDevice_Check(value)) return c10::IValue(reinterpret_cast<THPDevice*>(value)->device);
        if (PyUnicode_Check(value)) return c10::IValue(c10::Device(as_string(value)));
        break;
      default:
        break;
    }
    throw NotNative{std::string(Py_TYPE(value)->tp_name) + " where " + type->str() + " is expected"};
  }

  // Data types, layouts and memory formats are integers to the dispatcher.
  static c10::IValue read_int(PyObject* value) {
    if (PyLong_Check(value)) return c10::IValue(as_int(value));
    if (THPDtype_Check(value)) return c10::IValue(reinterpret_cast<THPDtype*>(value)->scalar_type);
    if (Py_TYPE(value) == &THPLayoutType) return c10::IValue(reinterpret_cast<THPLayout*>(value)->layout);
    if (Py_TYPE(value) == &THPMemoryFormatType) {
      return c10::IValue(reinterpret_cast<THPMemoryFormat*>(value)->memory_format);
    }
    throw NotNative{std::string(Py_TYPE(value)->tp_name) + " where int is expected"};
  }

  static c10::IValue read_number(PyObject* value) {
    if (PyBool_Check(value)) return c10::IValue(value == Py_True);
    if (PyLong_Check(value)) return c10::IValue(as_int(value));
    if (PyFloat_Check(value)) return c10::IValue(PyFloat_AS_DOUBLE(value));
    if (PyComplex_Check(value)) {
      return c10::IValue(c10::complex<double>(PyComplex_RealAsDouble(value), PyComplex_ImagAsDouble(value)));
    }
    throw NotNative{std::string(Py_TYPE(value)->tp_name) + " where a number is expected"};
  }

  static double checked_double(PyObject* value) {
    const double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) throw PythonError();
    return number;
  }

  const Names& names_;
};

} // namespace icpu
