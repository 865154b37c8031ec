// Weights whose memory is given back because only their packed copies are read.
#pragma once

#include "python.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace icpu {

// Whether no other tensor uses the memory of this one.
inline PyObject* owns_memory_alone(PyObject*, PyObject* object) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    if (!is_tensor(object)) fail(PyExc_TypeError, "owns_memory_alone takes a tensor");
    const at::TensorBase& tensor = as_tensor(object);
    if (!tensor.has_storage()) Py_RETURN_FALSE;
    if (tensor.use_count() != 1) Py_RETURN_FALSE; // C++ holds it, too: a consumer of DLPack, a graph of autograd
    // The Python object of a storage, once made, holds a reference of its own.
    const bool has_object = tensor.storage().unsafeGetStorageImpl()->pyobj_slot()->load_pyobj() != nullptr;
    return PyBool_FromLong(tensor.storage().use_count() == (has_object ? 2 : 1));
  });
}

// A tensor with the sizes, strides and dtype of another and without memory; who reads or writes it gets the message.
inline PyObject* without_memory(PyObject*, PyObject* args) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    PyObject* object = nullptr;
    const char* message = nullptr;
    if (!PyArg_ParseTuple(args, "Os", &object, &message)) throw PythonError();
    if (!is_tensor(object)) fail(PyExc_TypeError, "without_memory takes a tensor");
    const at::TensorBase& like = as_tensor(object);
    const size_t bytes = at::detail::computeStorageNbytes(like.sizes(), like.strides(), like.itemsize());
    auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), bytes, c10::DataPtr(nullptr, c10::kCPU), nullptr, /*resizable=*/false);
    storage->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
    at::TensorBase result = at::detail::empty_cpu({0}, like.scalar_type());
    result.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(std::move(storage)));
    result.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
    return THPVariable_Wrap(result);
  });
}

} // namespace icpu
