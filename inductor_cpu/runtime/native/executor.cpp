// The extension module `icpu_native`: the types Plan and WeightGuard, and the pool of memory.
#include "decode.h"
#include "guard.h"
#include "originals.h"
#include "run.h"

#include <structmember.h>

#include <cstddef>
#include <memory>
#include <string>

namespace icpu {
namespace {

struct PlanObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Plan* plan;
};

// Of the operators library; null until that is loaded. Touched with the GIL only.
Prepare prepare_operator = nullptr;

// Lets the operators library, if it is there, prepare what the plan has kept for it. Calls that run meanwhile go on as
// they were.
void prepare_operators(Plan& plan) {
  if (C10_LIKELY(!plan.waiting) || prepare_operator == nullptr) return;
  plan.waiting = false;
  for (Instruction& instruction : plan.instructions) {
    auto* call = std::get_if<ExternCall>(&instruction);
    if (call == nullptr || call->source.get() == nullptr) continue;
    std::string why;
    call->native.set(prepare_operator(call->source.get(), plan.names, why));
    if (PyErr_Occurred() != nullptr) throw PythonError();
    call->why_python = why;
    call->source = Ref();
  }
}

PyObject* run_plan(Plan& plan, PyObject* inputs) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    if (!PyList_CheckExact(inputs)) fail(PyExc_TypeError, "a plan takes one list of inputs");
    prepare_operators(plan);
    Frame frame(plan);
    frame.load(elements(inputs));
    // The caller's references go now, so that an input is freed after its last use.
    if (PyList_SetSlice(inputs, 0, PyList_GET_SIZE(inputs), nullptr) != 0) throw PythonError();
    {
      WithoutGil others_run;
      frame.run();
      frame.finish();
    }
    return frame.results();
  });
}

PyObject* plan_vectorcall(PyObject* self, PyObject* const* args, size_t flagged, PyObject* names) {
  if (PyVectorcall_NARGS(flagged) != 1 || (names != nullptr && PyTuple_GET_SIZE(names) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a plan takes one list of inputs");
    return nullptr;
  }
  return run_plan(*reinterpret_cast<PlanObject*>(self)->plan, args[0]);
}

PyObject* plan_run(PyObject* self, PyObject* inputs) { return run_plan(*reinterpret_cast<PlanObject*>(self)->plan, inputs); }

PyObject* plan_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    PyObject *source = nullptr, *addresses = nullptr, *slot = nullptr, *reg = nullptr;
    int profile = 0;
    static const char* names[] = {"plan", "addresses", "slot", "reg", "profile", nullptr};
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO!OO|p", const_cast<char**>(names), &source, &PyDict_Type, &addresses, &slot, &reg, &profile)) {
      throw PythonError();
    }
    auto plan = std::make_unique<Plan>(Decoder(source, addresses, slot, reg).decode());
    plan->force_profile = profile != 0;
    prepare_operators(*plan);
    Ref self = Ref::steal(type->tp_alloc(type, 0));
    auto* object = reinterpret_cast<PlanObject*>(self.get());
    object->vectorcall = plan_vectorcall;
    object->plan = plan.release();
    return self.release();
  });
}

void plan_dealloc(PyObject* self) {
  delete reinterpret_cast<PlanObject*>(self)->plan;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// One tuple per extern call, as the next call makes it: label, "native" or "python", why Python, why an extern.
PyObject* plan_describe(PyObject* self, PyObject*) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    Plan& plan = *reinterpret_cast<PlanObject*>(self)->plan;
    prepare_operators(plan);
    Ref list = Ref::steal(PyList_New(0));
    for (const Instruction& instruction : plan.instructions) {
      const auto* call = std::get_if<ExternCall>(&instruction);
      if (call == nullptr) continue;
      const char* path = call->native.get() != nullptr ? "native" : "python";
      Ref row = Ref::steal(
          Py_BuildValue("(ssss)", call->outputs.label.c_str(), path, call->why_python.c_str(), call->reason.c_str()));
      if (PyList_Append(list.get(), row.get()) != 0) throw PythonError();
    }
    return list.release();
  });
}

PyMethodDef plan_methods[] = {
    {"run", plan_run, METH_O, "run(inputs: list) -> list. Takes the inputs out of the list and returns the results."},
    {"describe", plan_describe, METH_NOARGS,
     "describe() -> list of (label, 'native' or 'python', why Python, reason), one per extern call."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef plan_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PlanObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot plan_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(plan_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(plan_dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, plan_methods},
    {Py_tp_members, plan_members},
    {Py_tp_doc, const_cast<char*>("Plan(plan, addresses, slot, reg, profile=False): an ExecutionPlan with names of these types, ready to run.")},
    {0, nullptr}};

PyType_Spec plan_spec = {
    "icpu_native.Plan", sizeof(PlanObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, plan_slots};

PyObject* set_pool_limit(PyObject*, PyObject* bytes) {
  return guarded<PyObject*>(nullptr, [&] {
    Pool::instance().set_limit(static_cast<size_t>(std::max<int64_t>(as_int(bytes), 0)));
    Py_RETURN_NONE;
  });
}

PyObject* lower_pool_limit(PyObject*, PyObject* bytes) {
  return guarded<PyObject*>(nullptr, [&] {
    Pool::instance().lower_limit(static_cast<size_t>(std::max<int64_t>(as_int(bytes), 0)));
    Py_RETURN_NONE;
  });
}

PyObject* clear_pool(PyObject*, PyObject*) {
  Pool::instance().clear();
  Py_RETURN_NONE;
}

PyObject* pool_bytes(PyObject*, PyObject*) { return PyLong_FromSize_t(Pool::instance().kept_bytes()); }

// python.h declares the beginning of torch's tensor object by hand. Prove that it is right for this torch.
PyObject* check_tensor_layout(PyObject*, PyObject* tensor) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    Ref expected = Ref::steal(PyObject_CallMethod(tensor, "data_ptr", nullptr));
    const auto* impl = *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(tensor) + offsetof(PyTensor, cdata));
    Ref address = attribute(tensor, "_cdata");
    if (as_int(address.get()) != static_cast<int64_t>(reinterpret_cast<intptr_t>(impl)) ||
        as_int(expected.get()) != static_cast<int64_t>(reinterpret_cast<intptr_t>(as_tensor(tensor).data_ptr()))) {
      fail(PyExc_ImportError, "the tensor object of this torch has another layout than the executor was written for");
    }
    Py_RETURN_NONE;
  });
}

PyObject* use_operators(PyObject*, PyObject* capsule) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    void* prepare = PyCapsule_GetPointer(capsule, kPrepareCapsule);
    if (prepare == nullptr) throw PythonError();
    prepare_operator = reinterpret_cast<Prepare>(prepare);
    Py_RETURN_NONE;
  });
}

PyMethodDef module_methods[] = {
    {"use_operators", use_operators, METH_O,
     "use_operators(capsule): call operators by the operators library from each plan's next call on."},
    {"set_pool_limit", set_pool_limit, METH_O, "set_pool_limit(bytes): most memory kept for later calls."},
    {"lower_pool_limit", lower_pool_limit, METH_O, "lower_pool_limit(bytes): keep no more than that, or than now if less."},
    {"clear_pool", clear_pool, METH_NOARGS, "clear_pool(): give the kept memory back to the system."},
    {"pool_bytes", pool_bytes, METH_NOARGS, "pool_bytes() -> bytes kept for later calls."},
    {"owns_memory_alone", owns_memory_alone, METH_O, "owns_memory_alone(tensor): no other tensor uses its memory."},
    {"without_memory", without_memory, METH_VARARGS,
     "without_memory(tensor, message): like it, with no memory; reading it raises the message."},
    {"check_tensor_layout", check_tensor_layout, METH_O, "check_tensor_layout(tensor): raise ImportError if wrong."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "icpu_native", "The native executor of icpu.", -1, module_methods, nullptr, nullptr, nullptr,
    nullptr};

} // namespace
} // namespace icpu

PyMODINIT_FUNC __attribute__((visibility("default"))) PyInit_icpu_native() {
  using namespace icpu;
  return guarded<PyObject*>(nullptr, []() -> PyObject* {
    Ref module = Ref::steal(PyModule_Create(&module_definition));
    Ref type = Ref::steal(PyType_FromSpec(&plan_spec));
    // AOTAutograd hands its inputs in a list that is emptied.
    if (PyObject_SetAttrString(type.get(), "_boxed_call", Py_True) != 0) throw PythonError();
    if (PyModule_AddObjectRef(module.get(), "Plan", type.get()) != 0) throw PythonError();
    Ref guard = Ref::steal(PyType_FromSpec(&guard_spec));
    if (PyModule_AddObjectRef(module.get(), "WeightGuard", guard.get()) != 0) throw PythonError();
    return module.release();
  });
}
