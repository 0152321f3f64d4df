// Tiles of a matrix product with oneDNN, which selects kernels for the processor. oneDNN runs on one thread,
// because its own partition of the work, and with it the order of sums, would depend on the number of
// threads.

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/gemm_tile.h"
#include "runtime/check.h"
#include "runtime/host_memory.h"
#include "runtime/memory.h"
#include "runtime/signals.h"

namespace flatshard {
namespace {

using dnnl::memory;

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::stream& stream() {
  thread_local dnnl::stream instance(engine());
  return instance;
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix(int64_t rows, int64_t columns, DType dtype, int64_t row_length, bool transposed) {
  const memory::dims strides = transposed ? memory::dims{1, row_length} : memory::dims{row_length, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

// Returns whether oneDNN uses this instruction set of x86.
bool may_use(dnnl::cpu_isa set) {
  const auto all = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (all & static_cast<unsigned>(set)) == static_cast<unsigned>(set);
}

// Returns whether oneDNN's kernels copy operands themselves, as those for AVX-512 do. On processors other
// than x86 the instruction set is 0.
bool copies_operands() {
  return static_cast<unsigned>(dnnl::get_effective_cpu_isa()) == 0 || may_use(dnnl::cpu_isa::avx512_core);
}

// An operand of `rows` x `columns` in memory, or a copy of it whose rows are not crowded.
class Operand {
 public:
  // `extent` is the other extent of c. If it is small, a copy does not pay off.
  Operand(int64_t rows, int64_t columns, int64_t row, const GemmTile& t, bool is_read_down, int64_t extent)
      : rows_(rows), columns_(columns), row_(row), copy_row_(uncrowded(columns)) {
    constexpr int64_t kLeastExtent = 64, kMostBytes = 9 << 20;  // bytes per thread: 512 columns of 4096 rows
    is_copied_ = is_read_down && t.in == DType::f32 && is_crowded(row) && extent >= kLeastExtent &&
                 rows * copy_row_ * size_of(t.in) <= kMostBytes && !copies_operands();
  }

  memory::desc desc(DType dtype, bool transposed) const {
    const int64_t row = is_copied_ ? copy_row_ : row_;
    return transposed ? matrix(columns_, rows_, dtype, row, true)
                      : matrix(rows_, columns_, dtype, row, false);
  }
  int64_t scratch_bytes() const {
    return is_copied_ ? (rows_ * copy_row_ * size_of(DType::f32) + 63) / 64 * 64 : 0;
  }
  // The operand to read: `data`, or its copy, which takes its memory from `scratch`.
  void* ready(const void* data, char*& scratch) const {
    if (!is_copied_) return const_cast<void*>(data);
    auto* const copy = reinterpret_cast<float*>(std::exchange(scratch, scratch + scratch_bytes()));
    for (int64_t r = 0; r < rows_; ++r)
      std::memcpy(copy + r * copy_row_, static_cast<const float*>(data) + r * row_,
                  static_cast<size_t>(columns_) * sizeof(float));
    return copy;
  }

 private:
  int64_t rows_, columns_, row_, copy_row_;
  bool is_copied_;
};

Operand operand_a(const GemmTile& t) {
  return t.transpose_a ? Operand(t.K, t.M, t.lda, t, true, t.N) : Operand(t.M, t.K, t.lda, t, false, t.N);
}
Operand operand_b(const GemmTile& t) {
  return t.transpose_b ? Operand(t.N, t.K, t.ldb, t, false, t.M) : Operand(t.K, t.N, t.ldb, t, true, t.M);
}

// Sets the factor of a product. As a post-op it would select oneDNN's reference loop, which is a hundred
// times slower.
void set_factor(dnnl::primitive_attr& attributes, float factor) {
#if DNNL_VERSION_MAJOR >= 3
  static_cast<void>(factor);  // the value is bound to DNNL_ARG_ATTR_SCALES
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, 0);
#else
  attributes.set_output_scales(0, {factor});
#endif
}

// oneDNN asks OpenMP for the number of threads, which OpenMP stores per calling thread.
void use_one_thread() {
  thread_local bool set = false;
  if (!std::exchange(set, true)) omp_set_num_threads(1);
}

}  // namespace

class TileProduct {
 public:
  explicit TileProduct(const GemmTile& t)
      : operand_a_(operand_a(t)),
        operand_b_(operand_b(t)),
        a_(operand_a_.desc(t.in, t.transpose_a)),
        b_(operand_b_.desc(t.in, t.transpose_b)),
        c_(matrix(t.M, t.N, t.out, t.ldc, false)),
        bias_({1, t.N}, type_of(t.in), memory::dims{t.N, 1}),
        has_bias_(t.bias),
        alpha_(t.alpha) {
    use_one_thread();
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (t.alpha != 1) set_factor(attributes, t.alpha);
    if (t.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const auto description = describe(attributes);
    scratch_ = description.scratchpad_desc();
    primitive_ = dnnl::matmul(description);
  }

  int64_t scratch_bytes() const {
    return operand_a_.scratch_bytes() + operand_b_.scratch_bytes() +
           static_cast<int64_t>(scratch_.get_size());
  }

  void run(const TileData& data) const {
    use_one_thread();
    // A memory object stores its address, so each thread has its own objects: several threads may run one
    // product, each as worker 0 of its own caller.
    thread_local std::unordered_map<const TileProduct*, Arguments> bound;
    Arguments& arguments = bound[this];
    if (arguments.empty()) bind(arguments);
    char* scratch = static_cast<char*>(data.scratch);
    arguments.at(DNNL_ARG_SRC).set_data_handle(operand_a_.ready(data.a, scratch));
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(operand_b_.ready(data.b, scratch));
    arguments.at(DNNL_ARG_DST).set_data_handle(data.c);
    arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch);
    if (has_bias_) arguments.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(data.bias));
    const SignalsBlocked blocked;  // oneDNN's f32 kernels for AVX2 keep a heap address in the stack pointer
    primitive_.execute(stream(), arguments);
  }

 private:
  using Arguments = std::unordered_map<int, memory>;

  dnnl::matmul::primitive_desc describe(const dnnl::primitive_attr& attributes) const {
#if DNNL_VERSION_MAJOR >= 3
    return has_bias_ ? dnnl::matmul::primitive_desc(engine(), a_, b_, bias_, c_, attributes)
                     : dnnl::matmul::primitive_desc(engine(), a_, b_, c_, attributes);
#else
    const dnnl::matmul::desc operation =
        has_bias_ ? dnnl::matmul::desc(a_, b_, bias_, c_) : dnnl::matmul::desc(a_, b_, c_);
    return {operation, attributes, engine()};
#endif
  }

  void bind(Arguments& arguments) const {
    arguments.emplace(DNNL_ARG_SRC, memory(a_, engine(), nullptr));
    arguments.emplace(DNNL_ARG_WEIGHTS, memory(b_, engine(), nullptr));
    arguments.emplace(DNNL_ARG_DST, memory(c_, engine(), nullptr));
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(scratch_, engine(), nullptr));
    if (has_bias_) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, engine(), nullptr));
#if DNNL_VERSION_MAJOR >= 3
    const memory::desc one({1}, memory::data_type::f32, memory::dims{1});
    if (alpha_ != 1)
      arguments.emplace(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, memory(one, engine(), &alpha_));
#endif
  }

  Operand operand_a_, operand_b_;
  memory::desc a_, b_, c_, bias_, scratch_;
  bool has_bias_;
  mutable float alpha_;  // mutable because oneDNN takes a pointer to non-const
  dnnl::matmul primitive_;
};

// Asks for the instruction set that oneDNN uses, which ONEDNN_MAX_CPU_ISA may limit. On processors other than
// x86 it is 0.
Bf16Instructions bf16_instructions() {
  if (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) == 0) return Bf16Instructions::tiles;
  return may_use(dnnl::cpu_isa::avx512_core_amx)    ? Bf16Instructions::tiles
         : may_use(dnnl::cpu_isa::avx512_core_bf16) ? Bf16Instructions::pairs
                                                    : Bf16Instructions::none;
}

namespace {

std::atomic<bool> tile_failed{false};

// At the first execution of a product from one dtype to another, oneDNN generates code for all such products,
// and crashes if it is refused memory for it. So this executes a small product once there is enough memory.
void generate_code(DType in, DType out) {
  static std::mutex mutex;
  static std::map<std::pair<DType, DType>, std::unique_ptr<TileProduct>> small;
  const std::lock_guard lock(mutex);
  std::unique_ptr<TileProduct>& product = small[{in, out}];
  if (product) return;
  constexpr int64_t kSide = 64;
  product = std::make_unique<TileProduct>(GemmTile{.M = kSide,
                                                   .N = kSide,
                                                   .K = kSide,
                                                   .lda = kSide,
                                                   .ldb = kSide,
                                                   .ldc = kSide,
                                                   .in = in,
                                                   .out = out,
                                                   .transpose_a = false,
                                                   .transpose_b = false,
                                                   .bias = false,
                                                   .accumulate = false});
  const Memory matrices(Device::cpu(), 3 * kSide * kSide * size_of(DType::f32)),
      scratch(Device::cpu(), product->scratch_bytes());
  std::memset(matrices.data(), 0, static_cast<size_t>(matrices.bytes()));
  product->run({.c = matrices.data(),
                .a = static_cast<float*>(matrices.data()) + kSide * kSide,
                .b = static_cast<float*>(matrices.data()) + 2 * kSide * kSide,
                .bias = nullptr,
                .scratch = scratch.data()});
}

}  // namespace

std::shared_ptr<TileProduct> make_tile(const GemmTile& t) {
  constexpr int64_t kCode = int64_t{32} << 20;
  require_address_space(kCode, "the kernels of matrix products");
  try {
    generate_code(t.in, t.out);
    return std::make_shared<TileProduct>(t);
  } catch (const dnnl::error& error) {
    fail(str("oneDNN has no kernel for a product of ", t.M, " x ", t.N, " x ", t.K, " from ", t.in, " to ",
             t.out, ": ", error.what()));
  }
}

int64_t tile_scratch_bytes(const TileProduct& product) { return product.scratch_bytes(); }

void run_tile(const TileProduct& product, const TileData& data) noexcept {
  try {
    product.run(data);
  } catch (const std::exception&) {
    tile_failed = true;
  }
}

void check_tiles() {
  if (tile_failed.load(std::memory_order_relaxed) && tile_failed.exchange(false))
    fail(
        "out of host memory: oneDNN could not allocate the workspace of a matrix product; raise the limit on "
        "the address space (ulimit -v), or use less memory");
}

}  // namespace flatshard
