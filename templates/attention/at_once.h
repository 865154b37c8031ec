// Products one after the other, of a micro kernel that stores its sums at once.
//
// Preconditions: Micro has block(), as README.md says.
#pragma once

#include "base.h"

namespace icpu::attention {

template <class Micro>
struct AtOnce {
  template <class Element>
  void multiply(const Element* a, const Element* b, float* c, int64_t rows, int64_t columns, int64_t depth, bool accumulate) {
    Micro::block(a, b, c, rows, columns, depth, accumulate);
  }

  void finish() {}
};

}  // namespace icpu::attention
