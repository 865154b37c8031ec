// One call of a plan. All state is in the Frame, so any number of threads may run one plan.
#pragma once

#include "arena.h"
#include "arithmetic.h"
#include "plan.h"
#include "redzone.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/SmallVector.h>

#include <optional>

namespace icpu {

// Above this many bytes an output takes its memory from the pool, which saves the page faults of fresh memory.
constexpr size_t kPooledOutput = size_t{1} << 20;

// AOTAutograd has recorded the graph already, chosen the casts of autocast, and traced through dispatch modes: what the
// plan calls must do none of that again.
inline c10::DispatchKeySet excluded_keys() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                           c10::DispatchKey::PythonDispatcher, c10::DispatchKey::PreDispatch});
}

struct DispatchGuard {
  c10::impl::ExcludeDispatchKeyGuard keys{excluded_keys()};
  c10::AutoGradMode no_grad{false};
};

// Python operators look for dispatch modes themselves, and refuse to run below one.
class NoModes {
 public:
  NoModes() : saved_(c10::impl::TorchDispatchModeTLS::get_state()) { c10::impl::TorchDispatchModeTLS::set_state({}); }
  ~NoModes() { c10::impl::TorchDispatchModeTLS::set_state(saved_); }
  NoModes(const NoModes&) = delete;
  NoModes& operator=(const NoModes&) = delete;

 private:
  c10::impl::TorchDispatchModeTLS saved_;
};

// What the program has written itself, Python or C++, runs with the dispatch keys of the thread that called: it may make
// tensors of its own classes, push modes, call compiled functions and take gradients. Still without grad mode.
class ProgramGuard {
 public:
  explicit ProgramGuard(const c10::impl::LocalDispatchKeySet& caller) : keys_(caller) {}

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  NoModes no_modes_;
};

class Frame {
 public:
  explicit Frame(const Plan& plan)
      : plan_(plan), slots_(plan.slots), regs_(plan.registers, 0), pointers_(plan.most_pointers), ints_(plan.most_ints) {}

  // With the GIL: take what the plan needs of the inputs.
  void load(c10::ArrayRef<PyObject*> inputs) {
    for (const LoadInput& input : plan_.tensor_inputs) {
      PyObject* object = at_position(inputs, input.position);
      if (!is_tensor(object)) {
        fail(PyExc_TypeError, "input " + std::to_string(input.position) + " must be a tensor, not " + Py_TYPE(object)->tp_name);
      }
      slots_[input.slot] = as_tensor(object);
    }
    for (const LoadInt& input : plan_.int_inputs) regs_[input.reg] = as_int(at_position(inputs, input.position));
  }

  // Without the GIL.
  void run() {
    at::internal::lazy_init_num_threads();
    record_ = plan_.force_profile || at::hasCallbacks();
    std::optional<DispatchGuard> guard;
    if (plan_.dispatches) guard.emplace();
    const auto copied = resolve_inputs();
    for (const Instruction& instruction : plan_.instructions) {
      std::visit([this](const auto& step) { this->step(step); }, instruction);
    }
    for (const auto& [given, resolved] : copied) {
      DispatchGuard below;
      if (!given.equal(resolved)) given.copy_(resolved); // the graph has changed its input
    }
  }

  // With the GIL: the results as a new list.
  PyObject* results() const {
    Ref list = Ref::steal(PyList_New(static_cast<Py_ssize_t>(plan_.results.size())));
    for (size_t i = 0; i < plan_.results.size(); ++i) {
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), wrap(plan_.results[i]));
    }
    return list.release();
  }

  // Without the GIL: give back the arena and what the call made, which takes time for big tensors. Inputs stay: the
  // count of a tensor that Python knows changes under the GIL, and taking it for each of many inputs is slow.
  void finish() {
    for (SlotId slot : plan_.temporaries) slots_[slot].reset();
    arena_storage_ = c10::Storage();
    block_.reset();
  }

 private:
  using Sizes = c10::SmallVector<int64_t, 8>;

  // Kernels read memory, where an input with the negative bit (`z.conj().imag`) has the other sign, and which zeros of
  // autograd's (`_efficientzerotensor`) do not have: they get a copy. Returns such inputs with their copies.
  std::vector<std::pair<at::Tensor, at::Tensor>> resolve_inputs() {
    std::vector<std::pair<at::Tensor, at::Tensor>> found;
    for (const LoadInput& input : plan_.tensor_inputs) {
      if (C10_LIKELY(lies_in_memory(tensor(input.slot)))) continue;
      DispatchGuard below;
      const at::Tensor given = tensor(input.slot);
      slots_[input.slot] = copy_of(given, given.sizes(), given.strides());
      found.emplace_back(given, tensor(input.slot));
    }
    return found;
  }

  static bool lies_in_memory(const at::Tensor& given) {
    return !given.is_neg() && !given._is_zerotensor();
  }

  static PyObject* at_position(c10::ArrayRef<PyObject*> inputs, int64_t position) {
    if (position < 0 || position >= static_cast<int64_t>(inputs.size())) {
      fail(PyExc_TypeError, "the plan reads input " + std::to_string(position) + ", and " +
               std::to_string(inputs.size()) + " inputs were given");
    }
    return inputs[position];
  }

  const at::Tensor& tensor(SlotId id) const { return id >= 0 ? slots_[id] : plan_.constants[~id]; }
  int64_t value(const Int& number) const { return number.reg < 0 ? number.value : regs_[number.reg]; }
  Sizes values(const Ints& numbers) const {
    Sizes result;
    for (const Int& number : numbers) result.push_back(value(number));
    return result;
  }

  void step(const SizeOf& s) { regs_[s.reg] = tensor(s.slot).size(s.dim); }
  void step(const StrideOf& s) { regs_[s.reg] = tensor(s.slot).stride(s.dim); }
  void step(const Compute& s) { regs_[s.reg] = compute(s.op, value(s.left), value(s.right)); }

  void step(const AcquireArena& s) {
    const int64_t bytes = value(s.bytes);
    TORCH_CHECK(bytes >= 0, "the arena has a negative size: ", bytes);
    if (bytes > 0) {
      block_.reset(Pool::instance().acquire(bytes));
      arena_ = static_cast<char*>(block_->data);
      arena_bytes_ = bytes;
    }
  }

  void step(const Alloc& s) {
    const Sizes sizes = values(s.sizes), strides = values(s.strides);
    const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(s.dtype));
    if (plan_.redzone > 0) {
      BlockPtr block(Pool::instance().acquire(bytes + 2 * plan_.redzone + 64));
      char* data = static_cast<char*>(block->data) + plan_.redzone;
      zones_.add(s.label, data, bytes, plan_.redzone);
      slots_[s.slot] = over(storage_over(std::move(block), bytes, plan_.redzone), s.dtype, sizes, strides, 0);
    } else if (bytes < kPooledOutput) {
      slots_[s.slot] = at::detail::empty_strided_cpu(sizes, strides, s.dtype);
    } else {
      c10::Storage storage = storage_over(BlockPtr(Pool::instance().acquire(bytes)), bytes);
      slots_[s.slot] = over(std::move(storage), s.dtype, sizes, strides, 0);
    }
  }

  // The first view turns the arena into a storage. It owns the block, so a view that outlives the call stays valid.
  void step(const ArenaView& s) {
    if (!arena_storage_) {
      TORCH_CHECK(block_ != nullptr || arena_bytes_ == 0, "a view of an arena that was not acquired");
      arena_storage_ = storage_over(block_ ? std::move(block_) : BlockPtr(Pool::instance().acquire(1)), arena_bytes_);
    }
    const int64_t offset = value(s.offset), width = static_cast<int64_t>(c10::elementSize(s.dtype));
    TORCH_CHECK(offset % width == 0, "an arena view at ", offset, " bytes is not aligned to its type");
    slots_[s.slot] = over(arena_storage_, s.dtype, values(s.sizes), values(s.strides), offset / width);
  }

  void step(const StridedView& s) {
    const at::Tensor& base = tensor(s.base);
    const int64_t offset = base.storage_offset() + value(s.offset);
    const bool plain = base.is_cpu() && base.layout() == at::kStrided && !base.is_conj() && !base.is_neg();
    slots_[s.slot] = plain ? over(base.storage(), base.scalar_type(), values(s.sizes), values(s.strides), offset)
                           : base.as_strided(values(s.sizes), values(s.strides), offset);
  }

  void step(const KernelCall& s) {
    for (size_t i = 0; i < s.pointers.size(); ++i) {
      const Pointer& pointer = s.pointers[i];
      pointers_[i] = pointer.in_arena ? arena_ + value(pointer.offset)
                                      : behind(data(tensor(pointer.slot), s.label), value(pointer.offset));
    }
    const int64_t* ints = s.fixed_ints.data();
    if (!s.fixed) {
      for (size_t i = 0; i < s.ints.size(); ++i) ints_[i] = value(s.ints[i]);
      ints = ints_.data();
    }
    if (C10_LIKELY(!record_)) {
      check(s.function(pointers_.data(), ints), s.label);
    } else {
      at::RecordFunction range(at::RecordScope::FUNCTION);
      if (range.isActive()) range.before(s.label.c_str());
      check(s.function(pointers_.data(), ints), s.label);
    }
    zones_.check(s.label);
  }

  // Integers: an empty tensor has no address, and a kernel with nothing to do may get one.
  static void* behind(void* start, int64_t bytes) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(start) + static_cast<uintptr_t>(bytes));
  }

  // A kernel goes on after a bad index or a division by zero, with memory safe, and says so at its end.
  static void check(int64_t status, const std::string& label) {
    if (C10_LIKELY(status == 0)) return;
    if ((status & 1) != 0) TORCH_CHECK_INDEX(false, "index out of range in ", label);
    TORCH_CHECK((status & 4) == 0, "index or value out of range in ", label);
    TORCH_CHECK((status & 2) == 0, "ZeroDivisionError");
    TORCH_CHECK(false, "the kernel ", label, " returned the unknown status ", status);
  }

  void step(const ExternCall& s) {
    if (const auto* native = std::get_if<NativeCall>(&s.call)) {
      call(*native, s);
    } else {
      call(std::get<PythonCall>(s.call), s);
    }
    zones_.check(s.label);
  }

  void step(const Restride& s) {
    const Sizes sizes = values(s.sizes), strides = values(s.strides);
    if (!tensor(s.slot).defined()) return; // operators leave out results without use (an RNN's workspace)
    if (!s.dtype && tensor(s.slot).sizes() != c10::IntArrayRef(sizes)) return;
    if (s.dtype && tensor(s.slot).scalar_type() != *s.dtype) slots_[s.slot] = tensor(s.slot).to(*s.dtype);
    const at::Tensor& given = tensor(s.slot);
    TORCH_CHECK(given.sizes() == c10::IntArrayRef(sizes), "an operator returned sizes ", given.sizes(),
                " where the graph was compiled for ", c10::IntArrayRef(sizes));
    bool same = lies_in_memory(given) && !given.is_conj();
    for (size_t i = 0; i < sizes.size(); ++i) same = same && (sizes[i] <= 1 || given.stride(i) == strides[i]);
    // A result that aliases arena memory would change when its place is used again.
    same = same && !(arena_storage_ && given.storage().is_alias_of(arena_storage_));
    if (same || given.numel() == 0) return;
    slots_[s.slot] = copy_of(given, sizes, strides);
  }

  void step(const Guard& s) { zones_.add(s.label, arena_ + value(s.offset), value(s.bytes), plan_.redzone); }
  void step(const Unguard& s) { zones_.remove(arena_ + value(s.offset)); }

  void step(const Free& s) {
    for (SlotId slot : s.slots) {
      // Memory of ours that goes back to the pool is guarded no longer.
      if (plan_.redzone > 0 && slots_[slot].defined() && slots_[slot].has_storage()) {
        zones_.remove(static_cast<const char*>(slots_[slot].storage().data()));
      }
      slots_[slot].reset();
    }
  }

  static at::Tensor copy_of(const at::Tensor& given, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    at::Tensor copy = at::detail::empty_strided_cpu(sizes, strides, given.scalar_type());
    at::Tensor from = given, to = copy;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (strides[i] != 0) continue; // one element stands for all of an expanded dimension
      from = from.narrow(int64_t(i), 0, 1), to = to.narrow(int64_t(i), 0, 1);
    }
    to.copy_(from);
    return copy;
  }

  static at::Tensor over(
      c10::Storage storage, at::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::fromScalarType(dtype));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    return tensor;
  }

  static void* data(const at::Tensor& tensor, const std::string& label) {
    TORCH_CHECK(tensor.defined(), "the kernel ", label, " reads an empty slot");
    TORCH_CHECK(tensor.is_cpu() && tensor.layout() == at::kStrided, "the kernel ", label,
                " needs a dense CPU tensor and got one on ", tensor.device(), " with layout ", tensor.layout());
    return tensor.mutable_data_ptr();
  }

  // Externs.
  void call(const NativeCall& native, const ExternCall& s) {
    stack_.clear();
    for (const Argument& argument : native.arguments) stack_.push_back(evaluate(argument));
    std::optional<ProgramGuard> guard;
    if (native.of_program) guard.emplace(caller_);
    native.op.callBoxed(stack_);
    size_t next = 0;
    for (c10::IValue& value : stack_) take(std::move(value), s, next);
    check_count(next, s);
    stack_.clear();
  }

  c10::IValue evaluate(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::constant: return argument.constant;
      case Argument::Kind::tensor: {
        const at::Tensor& value = tensor(argument.index);
        return value.defined() ? c10::IValue(value) : c10::IValue();
      }
      case Argument::Kind::integer: return c10::IValue(regs_[argument.index]);
      case Argument::Kind::real: return c10::IValue(static_cast<double>(regs_[argument.index]));
      case Argument::Kind::boolean: return c10::IValue(regs_[argument.index] != 0);
      case Argument::Kind::list: {
        c10::impl::GenericList list(argument.element);
        list.reserve(argument.children.size());
        for (const Argument& child : argument.children) list.push_back(evaluate(child));
        return c10::IValue(std::move(list));
      }
    }
    TORCH_INTERNAL_ASSERT(false);
  }

  const Target& target(const ExternCall& s, size_t next) const {
    TORCH_CHECK(next < s.outputs.size(), s.label, " returned more than the ", s.outputs.size(), " results of the plan");
    return s.outputs[next];
  }

  static void check_count(size_t next, const ExternCall& s) {
    TORCH_CHECK(next == s.outputs.size(), s.label, " returned ", next, " results, and the plan has ", s.outputs.size());
  }

  void put(at::Tensor value, const ExternCall& s, size_t next) {
    const Target& to = target(s, next);
    TORCH_CHECK(to.kind != Target::Kind::reg, s.label, " returned a tensor where the plan has an integer");
    if (to.kind == Target::Kind::slot) slots_[to.index] = std::move(value);
  }

  void put(int64_t value, const ExternCall& s, size_t next) {
    const Target& to = target(s, next);
    TORCH_CHECK(to.kind != Target::Kind::slot, s.label, " returned a number where the plan has a tensor");
    if (to.kind == Target::Kind::reg) regs_[to.index] = value;
  }

  void take(c10::IValue value, const ExternCall& s, size_t& next) {
    if (value.isTensor()) {
      put(std::move(value).toTensor(), s, next++);
    } else if (value.isNone()) {
      put(at::Tensor(), s, next++);
    } else if (value.isBool()) {
      put(value.toBool(), s, next++);
    } else if (value.isInt()) {
      put(value.toInt(), s, next++);
    } else if (value.isSymInt()) {
      put(value.toSymInt().guard_int(__FILE__, __LINE__), s, next++);
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) take(item, s, next);
    } else {
      const bool dropped = target(s, next++).kind == Target::Kind::none;
      TORCH_CHECK(dropped, s.label, " returned a ", value.tagKind(), ", which a plan cannot hold");
    }
  }

  void call(const PythonCall& python, const ExternCall& s) {
    WithGil gil;
    const ProgramGuard guard(caller_);
    Ref args = build(python.args), kwargs = build(python.kwargs);
    Ref value = Ref::steal(PyObject_Call(python.callable.get(), args.get(), kwargs.get()));
    size_t next = 0;
    if (value.get() == Py_None && s.outputs.empty()) return;
    take(value.get(), s, next);
    check_count(next, s);
  }

  Ref build(const PyTree& node) const {
    switch (node.kind) {
      case PyTree::Kind::object: return node.object;
      case PyTree::Kind::slot: return Ref::steal(THPVariable_Wrap(tensor(node.index)));
      case PyTree::Kind::reg: return Ref::steal(PyLong_FromLongLong(regs_[node.index]));
      case PyTree::Kind::dict: {
        Ref dict = Ref::steal(PyDict_New());
        for (size_t i = 0; i < node.children.size(); ++i) {
          PyObject* key = PyTuple_GET_ITEM(node.object.get(), static_cast<Py_ssize_t>(i));
          if (PyDict_SetItem(dict.get(), key, build(node.children[i]).get()) != 0) throw PythonError();
        }
        return dict;
      }
      case PyTree::Kind::tuple:
      case PyTree::Kind::list: {
        const auto size = static_cast<Py_ssize_t>(node.children.size());
        const bool tuple = node.kind == PyTree::Kind::tuple;
        Ref sequence = Ref::steal(tuple ? PyTuple_New(size) : PyList_New(size));
        for (Py_ssize_t i = 0; i < size; ++i) {
          PyObject* item = build(node.children[i]).release();
          if (tuple) {
            PyTuple_SET_ITEM(sequence.get(), i, item);
          } else {
            PyList_SET_ITEM(sequence.get(), i, item);
          }
        }
        return sequence;
      }
    }
    TORCH_INTERNAL_ASSERT(false);
  }

  void take(PyObject* value, const ExternCall& s, size_t& next) {
    if (PyTuple_Check(value) || PyList_Check(value)) {
      for (PyObject* item : elements(value)) take(item, s, next);
    } else if (value == Py_None) {
      put(at::Tensor(), s, next++);
    } else if (is_tensor(value)) {
      put(as_tensor(value), s, next++);
    } else if (PyIndex_Check(value)) {
      put(as_int(value), s, next++);
    } else {
      const bool dropped = target(s, next++).kind == Target::Kind::none;
      TORCH_CHECK(dropped, s.label, " returned a ", Py_TYPE(value)->tp_name, ", which a plan cannot hold");
    }
  }

  PyObject* wrap(const Result& result) const {
    switch (result.kind) {
      case Result::Kind::slot: return Ref::steal(THPVariable_Wrap(tensor(result.index))).release();
      case Result::Kind::reg: return Ref::steal(PyLong_FromLongLong(regs_[result.index])).release();
      case Result::Kind::object: return Ref(result.object).release();
    }
    TORCH_INTERNAL_ASSERT(false);
  }

  const Plan& plan_;
  c10::SmallVector<at::Tensor, 32> slots_;
  c10::SmallVector<int64_t, 32> regs_;
  c10::SmallVector<void*, 32> pointers_;
  c10::SmallVector<int64_t, 32> ints_;
  std::vector<c10::IValue> stack_;
  const c10::impl::LocalDispatchKeySet caller_{c10::impl::tls_local_dispatch_key_set()};
  RedZones zones_;
  BlockPtr block_;
  c10::Storage arena_storage_;
  char* arena_ = nullptr;
  size_t arena_bytes_ = 0;
  bool record_ = false;
};

} // namespace icpu
