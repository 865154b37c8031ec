// One call of a plan. All state is in the Frame, so any number of threads may run one plan.
#pragma once

#include "arena.h"
#include "arithmetic.h"
#include "dispatch.h"
#include "plan.h"
#include "record.h"
#include "redzone.h"
#include "team.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/equal_ops.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

namespace icpu {

// Above this many bytes an output takes its memory from the pool, which saves the page faults of fresh memory.
constexpr size_t kPooledOutput = size_t{1} << 20;

// Kernels of a segment that share work, from which on one parallel region for all of them takes less than one for each.
constexpr int64_t kLeastShared = 2;

class Frame {
 public:
  explicit Frame(const Plan& plan)
      : plan_(plan), values_(plan.constants, plan.slots, plan.names.registers), pointers_(plan.most_pointers),
        ints_(plan.most_ints) {}

  // With the GIL: take what the plan needs of the inputs.
  void load(c10::ArrayRef<PyObject*> inputs) {
    for (const LoadInput& input : plan_.tensor_inputs) {
      PyObject* object = at_position(inputs, input.position);
      if (!is_tensor(object)) {
        fail(PyExc_TypeError, "input " + std::to_string(input.position) + " must be a tensor, not " + Py_TYPE(object)->tp_name);
      }
      values_.slots[input.slot] = as_tensor(object);
    }
    for (const LoadInt& input : plan_.int_inputs) values_.regs[input.reg] = as_int(at_position(inputs, input.position));
  }

  // Without the GIL.
  void run() {
    at::internal::lazy_init_num_threads();
    record_ = plan_.force_profile || at::hasCallbacks();
    std::optional<DispatchGuard> guard;
    if (plan_.dispatches) guard.emplace();
    const auto copied = resolve_inputs();
    for (const Segment& segment : plan_.segments) {
      const int64_t before = Team::shared();
      if (segment.shared.load(std::memory_order_relaxed) >= kLeastShared && Team::may_run()) {
        Team::run([&] { run(segment); });
      } else {
        run(segment);
      }
      segment.shared.store(Team::shared() - before, std::memory_order_relaxed);
    }
    for (const auto& [given, resolved] : copied) {
      DispatchGuard below;
      if (!equal(given, resolved)) copy(resolved, given); // the graph has changed its input
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
    for (SlotId slot : plan_.temporaries) values_.slots[slot].reset();
    arena_storage_ = c10::Storage();
    block_.reset();
  }

 private:
  using Sizes = c10::SmallVector<int64_t, 8>;

  void run(const Segment& segment) {
    for (size_t i = segment.begin; i < segment.end; ++i) {
      std::visit([this](const auto& step) { this->step(step); }, plan_.instructions[i]);
    }
  }

  // Kernels read memory, where an input with the negative bit (`z.conj().imag`) has the other sign, and which zeros of
  // autograd's (`_efficientzerotensor`) do not have: they get a copy. Returns such inputs with their copies.
  std::vector<std::pair<at::TensorBase, at::TensorBase>> resolve_inputs() {
    std::vector<std::pair<at::TensorBase, at::TensorBase>> found;
    for (const LoadInput& input : plan_.tensor_inputs) {
      if (C10_LIKELY(lies_in_memory(tensor(input.slot)))) continue;
      DispatchGuard below;
      const at::TensorBase given = tensor(input.slot);
      values_.slots[input.slot] = copy_of(given, given.scalar_type(), given.sizes(), given.strides());
      found.emplace_back(given, tensor(input.slot));
    }
    return found;
  }

  static bool lies_in_memory(const at::TensorBase& given) {
    return !given.is_neg() && !given._is_zerotensor();
  }

  static PyObject* at_position(c10::ArrayRef<PyObject*> inputs, int64_t position) {
    if (position < 0 || position >= static_cast<int64_t>(inputs.size())) {
      fail(PyExc_TypeError, "the plan reads input " + std::to_string(position) + ", and " +
               std::to_string(inputs.size()) + " inputs were given");
    }
    return inputs[position];
  }

  const at::TensorBase& tensor(SlotId id) const { return values_.tensor(id); }
  int64_t value(const Int& number) const { return number.reg < 0 ? number.value : values_.regs[number.reg]; }
  Sizes values(const Ints& numbers) const {
    Sizes result;
    for (const Int& number : numbers) result.push_back(value(number));
    return result;
  }

  void step(const SizeOf& s) { values_.regs[s.reg] = tensor(s.slot).size(s.dim); }
  void step(const StrideOf& s) { values_.regs[s.reg] = tensor(s.slot).stride(s.dim); }
  void step(const Compute& s) { values_.regs[s.reg] = compute(s.op, value(s.left), value(s.right)); }

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
      values_.slots[s.slot] = over(storage_over(std::move(block), bytes, plan_.redzone), s.dtype, sizes, strides, 0);
    } else if (bytes < kPooledOutput) {
      values_.slots[s.slot] = at::detail::empty_strided_cpu(sizes, strides, s.dtype);
    } else {
      c10::Storage storage = storage_over(BlockPtr(Pool::instance().acquire(bytes)), bytes);
      values_.slots[s.slot] = over(std::move(storage), s.dtype, sizes, strides, 0);
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
    values_.slots[s.slot] = over(arena_storage_, s.dtype, values(s.sizes), values(s.strides), offset / width);
  }

  void step(const StridedView& s) {
    const at::TensorBase& base = tensor(s.base);
    const int64_t offset = base.storage_offset() + value(s.offset);
    TORCH_CHECK(base.is_cpu() && base.layout() == at::kStrided, "a view of a tensor on ", base.device(),
                " with layout ", base.layout());
    values_.slots[s.slot] = over(base.storage(), base.scalar_type(), values(s.sizes), values(s.strides), offset,
                                 base.key_set() & kUnresolved);
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
      const Range range(s.label.c_str());
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
    std::optional<ProgramGuard> guard;
    if (s.of_program) guard.emplace(caller_);
    if (const NativeCall* native = s.native.get(); C10_LIKELY(native != nullptr)) {
      native->run(values_, s.outputs);
    } else if (s.of_program) {
      call(s.python, s.outputs);
    } else {
      const NoFunctionModes below;
      call(s.python, s.outputs);
    }
    zones_.check(s.outputs.label);
  }

  void step(const Restride& s) {
    const Sizes sizes = values(s.sizes), strides = values(s.strides);
    if (!tensor(s.slot).defined()) return; // operators leave out results without use (an RNN's workspace)
    if (!s.dtype && tensor(s.slot).sizes() != c10::IntArrayRef(sizes)) return;
    const at::TensorBase& given = tensor(s.slot);
    TORCH_CHECK(given.sizes() == c10::IntArrayRef(sizes), "an operator returned sizes ", given.sizes(),
                " where the graph was compiled for ", c10::IntArrayRef(sizes));
    const at::ScalarType dtype = s.dtype.value_or(given.scalar_type());
    bool same = lies_in_memory(given) && !given.is_conj() && given.scalar_type() == dtype;
    for (size_t i = 0; i < sizes.size(); ++i) same = same && (sizes[i] <= 1 || given.stride(i) == strides[i]);
    // A result that aliases arena memory would change when its place is used again.
    same = same && !(arena_storage_ && given.storage().is_alias_of(arena_storage_));
    if (same || (given.numel() == 0 && given.scalar_type() == dtype)) return;
    values_.slots[s.slot] = copy_of(given, dtype, sizes, strides);
  }

  void step(const Guard& s) { zones_.add(s.label, arena_ + value(s.offset), value(s.bytes), plan_.redzone); }
  void step(const Unguard& s) { zones_.remove(arena_ + value(s.offset)); }

  void step(const Free& s) {
    for (SlotId slot : s.slots) {
      // Memory of ours that goes back to the pool is guarded no longer.
      if (plan_.redzone > 0 && values_.slots[slot].defined() && values_.slots[slot].has_storage()) {
        zones_.remove(static_cast<const char*>(values_.slots[slot].storage().data()));
      }
      values_.slots[slot].reset();
    }
  }

  static at::TensorBase copy_of(
      const at::TensorBase& given, at::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    at::TensorBase result = at::detail::empty_strided_cpu(sizes, strides, dtype);
    copy(without_repeats(given, strides), without_repeats(result, strides));
    return result;
  }

  // One element stands for all of an expanded dimension.
  static at::TensorBase without_repeats(const at::TensorBase& tensor, c10::IntArrayRef strides) {
    if (std::find(strides.begin(), strides.end(), 0) == strides.end()) return tensor;
    Sizes sizes(tensor.sizes());
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (strides[i] == 0) sizes[i] = std::min<int64_t>(sizes[i], 1);
    }
    at::TensorBase view(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(), false));
    view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, Sizes(tensor.strides()), tensor.storage_offset());
    return view;
  }

  // Operators of torch by its own stubs: the class with the methods, at::Tensor, takes long to compile.
  static void copy(const at::TensorBase& from, const at::TensorBase& to) {
    at::_ops::copy_::call(const_cast<at::Tensor&>(whole(to)), whole(from), false);
  }
  static bool equal(const at::TensorBase& a, const at::TensorBase& b) {
    return at::_ops::equal::call(whole(a), whole(b));
  }

  // at::Tensor adds only methods to its base; operators.cpp, which knows it, checks that.
  static const at::Tensor& whole(const at::TensorBase& tensor) { return reinterpret_cast<const at::Tensor&>(tensor); }

  // What a view has of its base besides memory: that its values are conjugated or negated.
  static constexpr c10::DispatchKeySet kUnresolved{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};

  static at::TensorBase over(
      c10::Storage storage,
      at::ScalarType dtype,
      c10::IntArrayRef sizes,
      c10::IntArrayRef strides,
      int64_t offset,
      c10::DispatchKeySet keys = {}) {
    at::TensorBase tensor = at::detail::make_tensor_base<c10::TensorImpl>(
        std::move(storage), keys | c10::DispatchKeySet(c10::DispatchKey::CPU),
        caffe2::TypeMeta::fromScalarType(dtype));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    return tensor;
  }

  static void* data(const at::TensorBase& tensor, const std::string& label) {
    TORCH_CHECK(tensor.defined(), "the kernel ", label, " reads an empty slot");
    TORCH_CHECK(tensor.is_cpu() && tensor.layout() == at::kStrided, "the kernel ", label,
                " needs a dense CPU tensor and got one on ", tensor.device(), " with layout ", tensor.layout());
    return tensor.mutable_data_ptr();
  }

  void call(const PythonCall& python, const Outputs& outputs) {
    WithGil gil;
    Ref args = build(python.args), kwargs = build(python.kwargs);
    Ref value = Ref::steal(PyObject_Call(python.callable.get(), args.get(), kwargs.get()));
    if (value.get() == Py_None && outputs.targets.empty()) return;
    Receiver receiver(values_, outputs);
    take(value.get(), receiver);
    receiver.finish();
  }

  Ref build(const PyTree& node) const {
    switch (node.kind) {
      case PyTree::Kind::object: return node.object;
      case PyTree::Kind::slot: return Ref::steal(THPVariable_Wrap(tensor(node.index)));
      case PyTree::Kind::reg: return Ref::steal(PyLong_FromLongLong(values_.regs[node.index]));
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

  static void take(PyObject* value, Receiver& receiver) {
    if (PyTuple_Check(value) || PyList_Check(value)) {
      for (PyObject* item : elements(value)) take(item, receiver);
    } else if (value == Py_None) {
      receiver.put(at::TensorBase());
    } else if (is_tensor(value)) {
      receiver.put(as_tensor(value));
    } else if (PyIndex_Check(value)) {
      receiver.put(as_int(value));
    } else {
      receiver.drop(Py_TYPE(value)->tp_name);
    }
  }

  PyObject* wrap(const Result& result) const {
    switch (result.kind) {
      case Result::Kind::slot: return Ref::steal(THPVariable_Wrap(tensor(result.index))).release();
      case Result::Kind::reg: return Ref::steal(PyLong_FromLongLong(values_.regs[result.index])).release();
      case Result::Kind::object: return Ref(result.object).release();
    }
    TORCH_INTERNAL_ASSERT(false);
  }

  const Plan& plan_;
  Values values_;
  c10::SmallVector<void*, 32> pointers_;
  c10::SmallVector<int64_t, 32> ints_;
  const c10::impl::LocalDispatchKeySet caller_{c10::impl::tls_local_dispatch_key_set()};
  RedZones zones_;
  BlockPtr block_;
  c10::Storage arena_storage_;
  char* arena_ = nullptr;
  size_t arena_bytes_ = 0;
  bool record_ = false;
};

} // namespace icpu
