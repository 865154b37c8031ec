// Whether weights have changed since packed copies were made from them.
#pragma once

#include "python.h"

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <vector>

namespace icpu {

// What one weight looked like. The weak pointer keeps the address of the storage from being used for another one.
struct WeightState {
  int64_t position;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
  const void* impl = nullptr; // of the storage
  const void* data = nullptr;
  int64_t version = -1; // -1: a tensor without a version counter (inference mode)

  static const void* storage_of(const at::TensorBase& tensor) {
    return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl()) : static_cast<const void*>(tensor.unsafeGetTensorImpl());
  }
  static int64_t version_of(const at::TensorBase& tensor) {
    const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
    return counter.enabled() ? static_cast<int64_t>(counter.current_version()) : -1;
  }
  // Null for a weight whose memory was given back; asking the tensor for it would raise.
  static const void* data_of(const at::TensorBase& tensor) {
    if (!tensor.has_storage()) return nullptr;
    const void* start = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
    const auto offset = static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    return start == nullptr ? nullptr : static_cast<const char*>(start) + offset;
  }

  bool matches(const at::TensorBase& tensor) const {
    return impl == storage_of(tensor) && data == data_of(tensor) && version == version_of(tensor);
  }
  void record(const at::TensorBase& tensor) {
    impl = storage_of(tensor);
    data = data_of(tensor);
    version = version_of(tensor);
    if (tensor.has_storage()) {
      storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
    }
  }
};

// The Python type WeightGuard(positions): check(inputs) says whether all weights are as they were at record(inputs).
struct GuardObject {
  PyObject_HEAD
  std::vector<WeightState>* states;
};

inline const at::TensorBase& weight_at(PyObject* inputs, const WeightState& state) {
  if (!PyList_CheckExact(inputs) || state.position >= PyList_GET_SIZE(inputs)) {
    fail(PyExc_TypeError, "a weight guard takes the list of the graph's inputs");
  }
  PyObject* object = PyList_GET_ITEM(inputs, static_cast<Py_ssize_t>(state.position));
  if (!is_tensor(object)) fail(PyExc_TypeError, "a weight is not a tensor");
  return as_tensor(object);
}

inline PyObject* guard_new(PyTypeObject* type, PyObject* args, PyObject*) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    PyObject* positions = nullptr;
    if (!PyArg_ParseTuple(args, "O", &positions)) throw PythonError();
    auto states = std::make_unique<std::vector<WeightState>>();
    for (PyObject* position : elements(positions)) {
      states->emplace_back();
      states->back().position = as_int(position);
    }
    Ref self = Ref::steal(type->tp_alloc(type, 0));
    reinterpret_cast<GuardObject*>(self.get())->states = states.release();
    return self.release();
  });
}

inline void guard_dealloc(PyObject* self) {
  delete reinterpret_cast<GuardObject*>(self)->states;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

inline PyObject* guard_check(PyObject* self, PyObject* inputs) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    for (const WeightState& state : *reinterpret_cast<GuardObject*>(self)->states) {
      if (!state.matches(weight_at(inputs, state))) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
  });
}

// The positions of the weights that differ from the record.
inline PyObject* guard_changed(PyObject* self, PyObject* inputs) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    Ref list = Ref::steal(PyList_New(0));
    for (const WeightState& state : *reinterpret_cast<GuardObject*>(self)->states) {
      if (state.matches(weight_at(inputs, state))) continue;
      Ref position = Ref::steal(PyLong_FromLongLong(state.position));
      if (PyList_Append(list.get(), position.get()) != 0) throw PythonError();
    }
    return list.release();
  });
}

inline PyObject* guard_record(PyObject* self, PyObject* inputs) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    for (WeightState& state : *reinterpret_cast<GuardObject*>(self)->states) state.record(weight_at(inputs, state));
    Py_RETURN_NONE;
  });
}

inline PyObject* guard_forget(PyObject* self, PyObject*) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    for (WeightState& state : *reinterpret_cast<GuardObject*>(self)->states) {
      const int64_t position = state.position;
      state = WeightState();
      state.position = position;
      state.version = -2; // no tensor has this version
    }
    Py_RETURN_NONE;
  });
}

inline PyMethodDef guard_methods[] = {
    {"check", guard_check, METH_O, "check(inputs: list) -> bool: no weight changed since record."},
    {"changed", guard_changed, METH_O, "changed(inputs: list) -> positions of the weights that changed since record."},
    {"record", guard_record, METH_O, "record(inputs: list): remember the weights as they are now."},
    {"forget", guard_forget, METH_NOARGS, "forget(): every weight counts as changed."},
    {nullptr, nullptr, 0, nullptr}};

inline PyType_Slot guard_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(guard_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(guard_dealloc)},
    {Py_tp_methods, guard_methods},
    {Py_tp_doc, const_cast<char*>("WeightGuard(positions): tells whether weights changed.")},
    {0, nullptr}};

inline PyType_Spec guard_spec = {
    "icpu_native.WeightGuard", sizeof(GuardObject), 0, Py_TPFLAGS_DEFAULT, guard_slots};

} // namespace icpu
