// Gradients of attention, in blocks of queries and keys, without the matrix of scores in memory.
//
//   weights = 2^((q @ k^T * scale + mask - log_sums) * log2(e))       as the forward pass had them
//   slopes  = 0 where a mask of booleans hides a key, else
//   slopes  = weights * (noise * (grad_out @ v^T) - sum(grad_out * out))
//   grad_q  = slopes @ k * scale,  grad_k = slopes^T @ q * scale,  grad_v = (noise * weights)^T @ grad_out
//
// noise is 1 / keep for a weight that was kept and 0 for one that was dropped, or 1 without dropping.
//
// (Dao et al., FlashAttention, 2022, appendix B.4.) A block of queries meets one block of keys after the other.
// Gradients of keys and values are summed the other way round, as columns: then weights and slopes are second operands
// of their products as they are, and only rows of queries and of grad_out are transposed, once for each block of them.
//
// A thread takes heads of keys and values whole, with all query heads that share them; where there are few heads, their
// keys in several parts, and the parts' gradients of queries are added up afterwards.
//
// Preconditions: those of attention.h, for grad_out, out and the gradients too. log_sums is what the forward pass wrote,
// 0 for a row without any key. Weights and slopes are rounded to the micro kernel's element type; sums are float.
#pragma once

#include "problem.h"

#include <numeric>

namespace icpu::attention {

template <class Micro, class T, class MaskElement, bool causal, bool dropped>
class Backward {
  using Element = typename Micro::Element;
  using Pack = Packing<Micro, T>;
  static constexpr bool kMasked = !std::is_same_v<MaskElement, None>;
  using Rows = Softmax<Micro, kMasked>;
  static constexpr int64_t kBlock = Micro::kBlock, kColumns = Micro::kColumns, kStep = Micro::kStep;
  static constexpr int kVectors = kColumns / kLanes;
  // Queries and keys that meet at once, so that weights and slopes stay in the L2 cache: whole blocks and whole steps.
  static constexpr int64_t kUnit = std::lcm(kBlock, kStep);
  static constexpr int64_t kQueriesAtOnce = kUnit * (128 / kUnit), kKeysAtOnce = 256;

 public:
  Sizes sizes;
  float scale;
  Tensor<const T> grad_out, q, k, v, out;
  Tensor<const float> log_sums;
  bool in_parts = false;  // whether each is two numbers side by side, whose sum it is
  Tensor<const MaskElement> mask;
  float fill = -kInf<float>;  // the scores where a mask of booleans is false
  Tensor<const bool> kept;
  float keep = 1;
  Tensor<T> grad_q, grad_k, grad_v;
  Tensor<T> all_slopes = {};  // the gradient of an added mask, not causal; data may be null

  void run(int limit) const {
    const int64_t heads = sizes.batch * sizes.kv_heads;
    const int64_t products = sizes.batch * sizes.heads * sizes.rows * sizes.keys * (3 * sizes.depth + 2 * sizes.columns);
    const int threads = threads_for(products / 32, 4000, limit);
    // Heads that threads share equally, or many of them, need no parts.
    const bool whole = heads == 0 || heads % threads == 0 || heads >= 4 * threads;
    const int64_t parts = whole ? 1 : std::clamp<int64_t>(sizes.keys / kKeysAtOnce, 1, ceil_div(4 * threads, heads));
    const int64_t width = round_up(ceil_div(sizes.keys, parts), kColumns);  // keys of a part
    float* const sums = parts == 1 ? nullptr : scratch<float, 25>(parts * queries_() * sizes.depth);
    parallel_for(heads * parts, 1, threads, [&](int64_t begin, int64_t end) {
      const typename Micro::Thread thread;
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t head = unit / parts, part = unit % parts, first = std::min(part * width, sizes.keys);
        const Part keys{head / sizes.kv_heads, head % sizes.kv_heads, first, std::min(first + width, sizes.keys)};
        run_part(keys, sums == nullptr ? nullptr : sums + part * queries_() * sizes.depth);
      }
    });
    if (sums != nullptr) add_parts(sums, parts, width, threads);
  }

 private:
  // Keys of one head.
  struct Part {
    int64_t batch, kv_head, begin, end;
    int64_t count() const { return end - begin; }
  };

  // Queries of one head.
  struct Queries {
    int64_t batch, head, first, count;
  };

  struct Buffers {
    Element *keys, *keys_as_rows, *values;                      // of a part
    Element *queries, *grads, *queries_across, *grads_across;   // of a block of queries, as first operands
    Element *weights, *slopes, *slopes_as_rows;
    float *scores, *products, *grad_q, *grad_k, *grad_v;
    float bases[kQueriesAtOnce], rests[kQueriesAtOnce], deltas[kQueriesAtOnce];  // log_sums are bases + rests

    Buffers(const Backward& b, int64_t count) {
      const int64_t all = round_up(count, kColumns), depth = b.depth_(), columns = b.columns_();
      keys = scratch<Element, 18>(all * depth);
      keys_as_rows = scratch<Element, 19>(all * b.panels_() * kColumns);
      values = scratch<Element, 20>(all * columns);
      queries = scratch<Element, 21>(kQueriesAtOnce * (2 * depth + 2 * columns + 2 * kBlock));
      grads = queries + kQueriesAtOnce * depth;
      queries_across = grads + kQueriesAtOnce * columns;
      grads_across = queries_across + kQueriesAtOnce * round_up(b.sizes.depth, kBlock);
      slopes_as_rows = scratch<Element, 24>(kQueriesAtOnce * (kKeysAtOnce + 2 * kColumns));
      scores = scratch<float, 22>(2 * kQueriesAtOnce * kColumns);
      products = scores + kQueriesAtOnce * kColumns;
      // Weights and slopes lie where the floats were that they are made of, if they are floats too.
      weights = std::is_same_v<Element, float> ? reinterpret_cast<Element*>(scores)
                                               : slopes_as_rows + kQueriesAtOnce * kKeysAtOnce;
      slopes = std::is_same_v<Element, float> ? reinterpret_cast<Element*>(products) : weights + kQueriesAtOnce * kColumns;
      grad_q = scratch<float, 23>(kQueriesAtOnce * b.panels_() * kColumns);
      grad_k = scratch<float, 26>(all * b.across_(b.sizes.depth));
      grad_v = scratch<float, 27>(all * b.across_(b.sizes.columns));
      std::fill_n(grad_k, all * b.across_(b.sizes.depth), 0.0f);
      std::fill_n(grad_v, all * b.across_(b.sizes.columns), 0.0f);
    }
  };

  int64_t depth_() const { return round_up(sizes.depth, kStep); }
  int64_t columns_() const { return round_up(sizes.columns, kStep); }
  int64_t panels_() const { return ceil_div(sizes.depth, kColumns); }
  int64_t queries_() const { return sizes.batch * sizes.heads * sizes.rows; }
  // Values of a key or of its gradient where they are rows of a product: whole blocks.
  static int64_t across_(int64_t values) { return round_up(values, kBlock); }

  // Everything that some keys take part in. parts: where gradients of queries go, or null if these keys are all.
  void run_part(const Part& keys, float* parts) const {
    Buffers to(*this, keys.count());
    pack_keys(keys, to);
    const int64_t group = sizes.heads / sizes.kv_heads;
    // Queries before the first key do not see it.
    const int64_t begin = causal ? keys.begin / kQueriesAtOnce * kQueriesAtOnce : 0;
    for (int64_t head = keys.kv_head * group; head < (keys.kv_head + 1) * group; ++head) {
      for (int64_t first = begin; first < sizes.rows; first += kQueriesAtOnce) {
        const Queries some{keys.batch, head, first, std::min(kQueriesAtOnce, sizes.rows - first)};
        pack_queries(some, to);
        meet(some, keys, to);
        for (int64_t r = 0; r < some.count; ++r) {
          const int64_t row = first + r;
          float* const place = parts + ((keys.batch * sizes.heads + head) * sizes.rows + row) * sizes.depth;
          if (parts == nullptr) {
            finish_query(to.grad_q + r * kColumns, grad_q.at(keys.batch, head, row));
          } else {
            finish_query(to.grad_q + r * kColumns, place);
          }
        }
      }
    }
    finish_keys(to.grad_k, keys, sizes.depth, scale, grad_k);
    finish_keys(to.grad_v, keys, sizes.columns, 1.0f, grad_v);
  }

  // Keys as second operands of scores and of the gradients of queries; values as that of products with grad_out.
  void pack_keys(const Part& keys, const Buffers& to) const {
    const auto [b, h, begin, end] = keys;
    for (int64_t key = begin; key < end; key += kColumns) {
      const int64_t count = std::min(kColumns, end - key);
      Pack::keys(k.at(b, h, key), k.row, count, sizes.depth, to.keys + (key - begin) * depth_());
      Pack::keys(v.at(b, h, key), v.row, count, sizes.columns, to.values + (key - begin) * columns_());
    }
    for (int64_t first = begin; first < end; first += kKeysAtOnce) {
      const int64_t count = std::min(kKeysAtOnce, end - first);
      Element* place = to.keys_as_rows + (first - begin) * panels_() * kColumns;
      for (int64_t panel = 0; panel < panels_(); ++panel, place += round_up(count, kColumns) * kColumns) {
        const int64_t width = std::min(kColumns, sizes.depth - panel * kColumns);
        Pack::values(k.at(b, h, first) + panel * kColumns, k.row, count, width, place);
      }
    }
  }

  void pack_queries(const Queries& some, Buffers& to) const {
    const auto [b, h, first, count] = some;
    for (int64_t r = 0; r < count; r += kBlock) {
      const int64_t rows = std::min(kBlock, count - r);
      Pack::queries(q.at(b, h, first + r), q.row, rows, sizes.depth, false, to.queries + r * depth_());
      Pack::queries(grad_out.at(b, h, first + r), grad_out.row, rows, sizes.columns, false, to.grads + r * columns_());
    }
    Pack::across(q.at(b, h, first), q.row, count, sizes.depth, to.queries_across);
    Pack::across(grad_out.at(b, h, first), grad_out.row, count, sizes.columns, to.grads_across);
    for (int64_t r = 0; r < count; ++r) {
      const T *const grad = grad_out.at(b, h, first + r), *const value = out.at(b, h, first + r);
      Reg<float> sum = {};
      for (int64_t c = 0; c < sizes.columns; c += kLanes) {
        sum = fma_reg(load_floats(grad + c, sizes.columns - c), load_floats(value + c, sizes.columns - c), sum);
      }
      to.deltas[r] = total_of(sum);
      const float* const sum_of = log_sums.at(b, h, first + r);
      to.bases[r] = sum_of[0];
      to.rests[r] = in_parts ? sum_of[1] : 0.0f;
    }
  }

  // One block of queries and all keys of a part.
  void meet(const Queries& some, const Part& keys, Buffers& to) const {
    const int64_t seen = causal ? std::min(keys.end, some.first + some.count) : keys.end;
    if (seen <= keys.begin) std::fill_n(to.grad_q, kQueriesAtOnce * panels_() * kColumns, 0.0f);
    for (int64_t begin = keys.begin; begin < seen; begin += kKeysAtOnce) {
      const int64_t end = std::min(begin + kKeysAtOnce, seen);
      const int64_t packed_width = round_up(std::min(kKeysAtOnce, keys.end - begin), kColumns);
      for (int64_t key = begin; key < end; key += kColumns) {
        meet_panel(some, keys, key, std::min(kColumns, end - key), (key - begin) * kBlock, to);
      }
      const Element* panel = to.keys_as_rows + (begin - keys.begin) * panels_() * kColumns;
      for (int64_t p = 0; p < panels_(); ++p, panel += packed_width * kColumns) {
        float* const sums = to.grad_q + p * kQueriesAtOnce * kColumns;
        for (int64_t r = 0; r < some.count; r += kBlock) {
          const int64_t rows = std::min(kBlock, some.count - r);
          Micro::block(to.slopes_as_rows + r * kKeysAtOnce, panel, sums + r * kColumns, rows, sizes.depth - p * kColumns, end - begin,
                       begin != keys.begin);
        }
      }
    }
  }

  // One block of queries and one panel of keys. place: where the panel's slopes begin in each block of rows.
  void meet_panel(const Queries& some, const Part& keys, int64_t key, int64_t count, int64_t place, Buffers& to) const {
    const Element* const key_panel = to.keys + (key - keys.begin) * depth_();
    const Element* const value_panel = to.values + (key - keys.begin) * columns_();
    for (int64_t r = 0; r < some.count; r += kBlock) {
      const int64_t rows = std::min(kBlock, some.count - r);
      Micro::block(to.queries + r * depth_(), key_panel, to.scores + r * kColumns, rows, count, sizes.depth, false);
      Micro::block(to.grads + r * columns_(), value_panel, to.products + r * kColumns, rows, count, sizes.columns, false);
    }
    const int64_t rows = round_up(some.count, kStep);
    for (int64_t r = 0; r < rows; r += 2) {
      Reg<float> weight[2][kVectors] = {}, slope[2][kVectors] = {};
      for (int i = 0; i < 2 && r + i < some.count; ++i) weigh(some, r + i, key, count, to, weight[i], slope[i]);
      Pack::put_rows(to.weights, r, weight);
      Pack::put_rows(to.slopes, r, slope);
      for (int i = 0; i < 2; ++i) {
        Element* const block = to.slopes_as_rows + (r + i) / kBlock * kBlock * kKeysAtOnce + place;
        Pack::put_row(block + (r + i) % kBlock * kStep, slope[i]);
      }
    }
    add_across(to.grads_across, to.weights, rows, sizes.columns, to.grad_v + (key - keys.begin) * across_(sizes.columns));
    add_across(to.queries_across, to.slopes, rows, sizes.depth, to.grad_k + (key - keys.begin) * across_(sizes.depth));
  }

  // The weights and slopes of one row and panel of keys; zeros beyond what the row sees.
  ICPU_INLINE void weigh(const Queries& some, int64_t r, int64_t key, int64_t count, Buffers& to,
                         Reg<float> (&weight)[kVectors], Reg<float> (&slope)[kVectors]) const {
    const int64_t row = some.first + r, seen = causal ? std::min(count, row + 1 - key) : count;
    float* const scores = to.scores + r * kColumns;
    float unit = scale;  // of the scores at hand
    if constexpr (kMasked) {
      Rows::add_mask(scores, seen, scale, mask.at(some.batch, some.head, row) + key, fill);
      unit = 1;
    } else if (std::abs(to.bases[r]) > most_unrounded(in_parts)) {
      for (int i = 0; i < kColumns; ++i) scores[i] *= scale;
      unit = 1;
    }
    const Reg<float> base = splat_reg(to.bases[r]), rest = splat_reg(to.rests[r]), delta = splat_reg(to.deltas[r]);
    // The weight of the only key that a row sees is 1, whatever its score: its slope is 0, not a difference of roundings.
    const bool alone = sizes.keys == 1 || (causal && row == 0);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Reg<float> score = load_reg(scores + v * kLanes), product = load_reg(to.products + r * kColumns + v * kLanes);
      // The difference comes first: it is rounded once.
      const Reg<float> less = fma_reg(score, splat_reg(unit), -base) - rest;
      const Reg<float> power = power_of_two<6>(less * splat_reg(kLog2E));
      if constexpr (dropped) {
        Mask<> stays;
        load_unit(kept.at(some.batch, some.head, row) + key + v * kLanes, Rows::first_lanes(seen - v * kLanes).m[0], stays);
        const Reg<float> noise = select(stays, splat<1>(1 / keep), splat<1>(0.0f)).r[0];
        weight[v] = Rows::or_else(seen - v * kLanes, power * noise, 0.0f);
        slope[v] = Rows::or_else(seen - v * kLanes, power * fma_reg(product, noise, -delta), 0.0f);
      } else {
        weight[v] = Rows::or_else(seen - v * kLanes, power, 0.0f);
        slope[v] = Rows::or_else(seen - v * kLanes, power * (product - delta), 0.0f);
      }
      if (alone) slope[v] *= splat_reg(0.0f);  // infinities and NaN become NaN
      if constexpr (std::is_same_v<MaskElement, bool>) {
        Mask<> shown;
        load_unit(mask.at(some.batch, some.head, row) + key + v * kLanes, Rows::first_lanes(seen - v * kLanes).m[0], shown);
        slope[v] = select(shown, Vec<float>{{slope[v]}}, splat<1>(0.0f)).r[0];
      }
      if (all_slopes.data != nullptr) {
        store_floats(all_slopes.at(some.batch, some.head, row) + key + v * kLanes, slope[v], seen - v * kLanes);
      }
    }
  }

  // sums += across @ panel, for `values` rows.
  static void add_across(const Element* across, const Element* panel, int64_t queries, int64_t values, float* sums) {
    for (int64_t r = 0; r < values; r += kBlock) {
      const int64_t rows = std::min(kBlock, values - r);
      Micro::block(across + r * queries, panel, sums + r * kColumns, rows, kColumns, queries, true);
    }
  }

  // A row of the gradient of queries, in T or as a float of a part.
  template <class To>
  void finish_query(const float* sums, To* to) const {
    for (int64_t panel = 0; panel < panels_(); ++panel, sums += kQueriesAtOnce * kColumns) {
      for (int64_t c = 0, at = panel * kColumns; c < kColumns; c += kLanes, at += kLanes) {
        store_floats(to + at, load_reg(sums + c) * splat_reg(scale), sizes.depth - at);
      }
    }
  }

  // Gradients of keys or values: `values` rows of panels of keys become rows of keys.
  void finish_keys(const float* sums, const Part& keys, int64_t values, float factor, const Tensor<T>& grad) const {
    for (int64_t key = keys.begin; key < keys.end; key += kColumns, sums += across_(values) * kColumns) {
      for (int64_t value = 0; value < values; value += kLanes) {
        for (int64_t half = 0; half < kColumns && key + half < keys.end; half += kLanes) {
          Reg<float> tile[kLanes];
          for (int i = 0; i < kLanes; ++i) {
            const float* const from = sums + (value + i) * kColumns + half;
            tile[i] = value + i < values ? load_reg(from) * splat_reg(factor) : Reg<float>{};
          }
          transpose(tile);
          for (int64_t i = 0; i < std::min<int64_t>(kLanes, keys.end - key - half); ++i) {
            store_floats(grad.at(keys.batch, keys.kv_head, key + half + i) + value, tile[i], values - value);
          }
        }
      }
    }
  }

  void add_parts(const float* sums, int64_t parts, int64_t width, int threads) const {
    parallel_for(queries_(), 1, threads, [&](int64_t begin, int64_t end) {
      for (int64_t query = begin; query < end; ++query) {
        const int64_t row = query % sizes.rows, head = query / sizes.rows;
        // What keys behind a row's last one would have added was not written.
        const int64_t count = causal ? std::min(parts, row / width + 1) : parts;
        T* const to = grad_q.at(head / sizes.heads, head % sizes.heads, row);
        for (int64_t c = 0; c < sizes.depth; c += kLanes) {
          Reg<float> total = {};
          for (int64_t part = 0; part < count; ++part) {
            total += load_floats(sums + (part * queries_() + query) * sizes.depth + c, sizes.depth - c);
          }
          store_floats(to + c, total, sizes.depth - c);
        }
      }
    });
  }
};

}  // namespace icpu::attention
