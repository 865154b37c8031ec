// With which dispatch keys and modes a plan calls operators.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace icpu {

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

// An operator of torch that is called as Python looks for modes of __torch_function__, which the program's own calls
// have been through.
class NoFunctionModes {
 public:
  NoFunctionModes() : saved_(TLS::get_disabled_state()) {
    TLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~NoFunctionModes() { TLS::set_disabled_state(saved_); }
  NoFunctionModes(const NoFunctionModes&) = delete;
  NoFunctionModes& operator=(const NoFunctionModes&) = delete;

 private:
  using TLS = at::impl::PythonTorchFunctionTLS;
  at::impl::TorchFunctionDisabledState saved_;
};

// What the program has written itself, Python or C++, runs with the dispatch keys of the thread that called: it may
// make tensors of its own classes, push modes, call compiled functions and take gradients. Still without grad mode.
class ProgramGuard {
 public:
  explicit ProgramGuard(const c10::impl::LocalDispatchKeySet& caller) : keys_(caller) {}

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  NoModes no_modes_;
};

} // namespace icpu
