// Blocks of memory that are kept for the next call, so that repeated calls touch no fresh pages.
#pragma once

#include "redzone.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <new>

namespace icpu {

struct Block {
  void* data;
  size_t size;
};

class Pool {
 public:
  // One per process, never destroyed: tensors that own blocks may outlive everything else.
  static Pool& instance() {
    static Pool* pool = new Pool();
    return *pool;
  }

  // A block of at least `bytes`, aligned to 64 bytes (2 MiB where huge pages pay). Best fit, wasting at most a quarter.
  Block* acquire(size_t bytes) {
    const size_t size = rounded(bytes);
    {
      std::lock_guard<std::mutex> guard(mutex_);
      auto best = kept_.end();
      for (auto it = kept_.begin(); it != kept_.end(); ++it) {
        const bool fits = (*it)->size >= size && (*it)->size <= size + size / 4;
        if (fits && (best == kept_.end() || (*it)->size < (*best)->size)) best = it;
      }
      if (best != kept_.end()) {
        Block* block = *best;
        kept_.erase(best);
        kept_bytes_ -= block->size;
        return block;
      }
    }
    if (Block* block = create(size)) return block;
    clear(); // what is kept may be what is missing
    Block* block = create(size);
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "icpu could not allocate ", size, " bytes");
    return block;
  }

  // Keeps the block; the least recently used ones go when too much is kept.
  void release(Block* block) {
    unpoison(block->data, block->size);
    std::lock_guard<std::mutex> guard(mutex_);
    kept_.push_front(block);
    kept_bytes_ += block->size;
    trim(limit_);
  }

  void set_limit(size_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    limit_ = bytes;
    trim(limit_);
  }

  // Of a process that may not take all of the machine's memory.
  void lower_limit(size_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    limit_ = std::min(limit_, bytes);
    trim(limit_);
  }

  void clear() {
    std::lock_guard<std::mutex> guard(mutex_);
    trim(0);
  }

  size_t kept_bytes() {
    std::lock_guard<std::mutex> guard(mutex_);
    return kept_bytes_;
  }

 private:
  // A thread of ours may hold the mutex while another one forks; the child would wait for it for ever.
  Pool() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().mutex_.unlock(); });
  }

  static constexpr size_t kSmall = 64, kPage = 4096, kHuge = size_t{2} << 20;
  static constexpr size_t kMaxBlocks = 256;

  static size_t rounded(size_t bytes) {
    const size_t unit = bytes >= 2 * kHuge ? kHuge : bytes >= 16 * kPage ? kPage : kSmall;
    return (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
  }

  static Block* create(size_t size) {
    void* data = nullptr;
    const size_t alignment = size >= 2 * kHuge ? kHuge : kSmall;
    if (posix_memalign(&data, alignment, size) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
    if (alignment == kHuge) madvise(data, size, MADV_HUGEPAGE);
#endif
    return new Block{data, size};
  }

  void trim(size_t limit) {
    while (!kept_.empty() && (kept_bytes_ > limit || kept_.size() > kMaxBlocks)) {
      Block* oldest = kept_.back();
      kept_.pop_back();
      kept_bytes_ -= oldest->size;
      std::free(oldest->data);
      delete oldest;
    }
  }

  // What a container or a resource limit leaves of it comes by lower_limit.
  static size_t default_limit() {
    if (kSanitized) return 0; // so that a use after the end is seen
    return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE)) / 8;
  }

  std::mutex mutex_;
  std::list<Block*> kept_;
  size_t kept_bytes_ = 0;
  size_t limit_ = default_limit();
};

struct ReleaseBlock {
  void operator()(Block* block) const { Pool::instance().release(block); }
};
using BlockPtr = std::unique_ptr<Block, ReleaseBlock>;

// A storage that owns `block` and gives it back to the pool with its last tensor. It can be resized as any other.
// Its first byte is at `offset` of the block.
inline c10::Storage storage_over(BlockPtr block, size_t bytes, size_t offset = 0) {
  Block* raw = block.release();
  c10::DataPtr data(
      static_cast<char*>(raw->data) + offset, raw, [](void* context) { Pool::instance().release(static_cast<Block*>(context)); }, c10::kCPU);
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), c10::GetCPUAllocator(), true);
}

} // namespace icpu
