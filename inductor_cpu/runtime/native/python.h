// Small helpers around the Python C API, and the few symbols of libtorch_python that the executor needs.
//
// torch/csrc/autograd/python_variable.h declares these too, but takes ten seconds to compile because it includes
// pybind11 and autograd. `check_tensor_layout` in executor.cpp proves at load time that the layout below is right.
#pragma once

#include <Python.h>

#include <ATen/core/TensorBase.h>

#include <exception>
#include <string>
#include <utility>

extern PyObject* THPVariableClass;
PyObject* THPVariable_Wrap(const at::TensorBase& var);

namespace torch {
void translate_exception_to_python(const std::exception_ptr& e_ptr);
}

namespace icpu {

struct PyTensor {
  PyObject_HEAD
  at::TensorBase cdata;
};

// A Python exception on its way through C++. It is fetched from the thread state, so that destructors run clean.
struct PythonError {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PythonError() { PyErr_Fetch(&type, &value, &trace); }
  void restore() const { PyErr_Restore(type, value, trace); }
};

// An owned reference.
class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* object) {
    if (object == nullptr) throw PythonError();
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  static Ref share(PyObject* object) {
    Py_XINCREF(object);
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// The body of a function that Python calls: a C++ exception becomes the Python exception that torch gives it.
template <class Result, class Body>
Result guarded(Result failed, Body&& body) {
  try {
    return body();
  } catch (const PythonError& error) {
    error.restore();
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
  return failed;
}

[[noreturn]] C10_NOINLINE inline void fail(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw PythonError();
}

inline bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

inline const at::TensorBase& as_tensor(PyObject* object) { return reinterpret_cast<PyTensor*>(object)->cdata; }

// What reads Python objects is used in many places when a plan is loaded: inlined, it would take long to compile.
C10_NOINLINE inline Ref attribute(PyObject* object, const char* name) { return Ref::steal(PyObject_GetAttrString(object, name)); }

C10_NOINLINE inline int64_t as_int(PyObject* object) {
  Ref index = Ref::steal(PyNumber_Index(object));
  const int64_t value = PyLong_AsLongLong(index.get());
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

C10_NOINLINE inline std::string as_string(PyObject* object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) throw PythonError();
  return {text, static_cast<size_t>(size)};
}

// The elements of a tuple or list, borrowed.
C10_NOINLINE inline c10::ArrayRef<PyObject*> elements(PyObject* sequence) {
  if (!PyTuple_Check(sequence) && !PyList_Check(sequence)) fail(PyExc_TypeError, "expected a tuple or a list");
  return {PySequence_Fast_ITEMS(sequence), static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence))};
}

// Lets other Python threads run for the lifetime of the object.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Takes the GIL inside the lifetime of a WithoutGil.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

} // namespace icpu
