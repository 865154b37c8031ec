// Red zones: guard memory before and after buffers, so that a kernel which writes out of bounds is caught and named.
//
// Zones are filled with a pattern and compared after each call. Under AddressSanitizer they are poisoned instead, which
// catches reads too, at the instruction that makes them.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace icpu {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
inline void poison(void* data, size_t bytes) { __asan_poison_memory_region(data, bytes); }
inline void unpoison(void* data, size_t bytes) { __asan_unpoison_memory_region(data, bytes); }
#else
constexpr bool kSanitized = false;
inline void poison(void*, size_t) {}
inline void unpoison(void*, size_t) {}
#endif

class RedZones {
 public:
  // Guard `bytes` at `data`, with `zone` bytes before and, from the next cache line on, after them.
  void add(const std::string& label, char* data, size_t bytes, size_t zone) {
    remove(data);
    const size_t after = (bytes + 63) / 64 * 64 - bytes + zone;
    guarded_.push_back({&label, data, bytes, zone, after});
    mark(guarded_.back());
  }

  void remove(const char* data) {
    for (size_t i = 0; i < guarded_.size(); ++i) {
      if (guarded_[i].data != data) continue;
      unpoison(guarded_[i].data - guarded_[i].before, guarded_[i].before);
      unpoison(guarded_[i].data + guarded_[i].bytes, guarded_[i].after);
      guarded_.erase(guarded_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }

  // Throws if somebody wrote to a zone; `caller` has just returned.
  void check(const std::string& caller) const {
    if (kSanitized) return;
    for (const Guarded& g : guarded_) {
      for (size_t i = 0; i < g.before; ++i) {
        if (g.data[-static_cast<std::ptrdiff_t>(i) - 1] != kPattern) report(caller, g, i + 1, " bytes before the start of ");
      }
      for (size_t i = 0; i < g.after; ++i) {
        if (g.data[g.bytes + i] != kPattern) report(caller, g, i, " bytes after the end of ");
      }
    }
  }

 private:
  struct Guarded {
    const std::string* label;
    char* data;
    size_t bytes, before, after;
  };
  static constexpr char kPattern = static_cast<char>(0xA5);

  static void mark(const Guarded& g) {
    if (kSanitized) {
      poison(g.data - g.before, g.before);
      poison(g.data + g.bytes, g.after);
    } else {
      std::memset(g.data - g.before, kPattern, g.before);
      std::memset(g.data + g.bytes, kPattern, g.after);
    }
  }

  [[noreturn]] static void report(const std::string& caller, const Guarded& g, size_t distance, const char* where) {
    TORCH_CHECK(false, "internal error of inductor_cpu: ", caller, " wrote ", distance, where, "the buffer ", *g.label,
                " (", g.bytes, " bytes)");
  }

  std::vector<Guarded> guarded_;
};

} // namespace icpu
