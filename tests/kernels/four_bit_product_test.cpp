#include "kernels/four_bit_product.h"

#include <vector>

#include "bench/four_bit_args.h"
#include "kernels/gemm.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// A product and its operands in memory. Values are small enough for every dtype, and random.
class Problem {
 public:
  Problem(int64_t M, const bench::FourBitWeight& weight, DType a, DType c, DType compute, bool transposed)
      : weight_(weight) {
    const int64_t N = transposed ? weight.out : weight.in, K = transposed ? weight.in : weight.out;
    bench::Tensors parts;
    for (const bench::Arg& arg : bench::four_bit_args(weight)) {
      const Tensor t = tensor(arg.dtype, arg.shape);
      std::vector<double> values(t.size());
      for (int64_t i = 0; i < t.size(); ++i) values[i] = arg.fill(i, unit());
      bench::from_doubles(t, values);
      parts.add(arg.name, t);
    }
    args.w = {bench::four_bit_matrix(parts, weight)};
    args.a = random(a, {M, K});
    args.bias = random(a, {N});
    args.c = random(c, {M, N});
    args.transpose_w = transposed;
    args.compute = compute;
  }

  Tensor tensor(DType dtype, const Shape& shape) {
    memory_.emplace_back(Device::cpu(), shape.size() * size_of(dtype));
    return {memory_.back().data(), dtype, shape, Device::cpu()};
  }
  Tensor random(DType dtype, const Shape& shape) {
    const Tensor t = tensor(dtype, shape);
    std::vector<double> values(t.size());
    for (double& value : values) value = 2 * unit() - 1;
    bench::from_doubles(t, values);
    return t;
  }

  FourBitProduct args{};

 private:
  double unit() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

  bench::FourBitWeight weight_;
  std::vector<Memory> memory_;
  uint64_t state_ = 1;
};

// Runs an op that takes scratch memory.
template <class Work>
void run(Work&& work) {
  StreamSet streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
  Arena scratch("scratch", Device::cpu());
  work(planning.add("compute"), scratch);
  scratch.commit({.poison = true});
  work(streams.add("compute"), scratch);
}

std::vector<double> product(const FourBitProduct& args, Problem& memory) {
  FourBitProduct p = args;
  p.c = memory.tensor(args.c.dtype, args.c.shape);
  bench::from_doubles(p.c, bench::to_doubles(args.c));
  run([&](Stream& stream, Arena& scratch) { four_bit_product(stream, scratch, p); });
  return bench::to_doubles(p.c);
}

std::vector<double> dense_product(const FourBitProduct& args, Problem& memory) {
  int64_t rows = 0;
  for (const FourBitMatrix& w : args.w) rows += w.shape[0];
  const Tensor b = memory.tensor(args.a.dtype, {rows, args.w.front().shape[1]}),
               c = memory.tensor(args.c.dtype, args.c.shape);
  bench::from_doubles(c, bench::to_doubles(args.c));
  run([&](Stream& stream, Arena& scratch) {
    int64_t row = 0;
    for (const FourBitMatrix& w : args.w) {
      dequantize_four_bit(stream, {.y = b.slice(row, row + w.shape[0]), .w = w});
      row += w.shape[0];
    }
    gemm(stream, scratch,
         {.c = c,
          .a = args.a,
          .b = b,
          .bias = args.bias,
          .transpose_b = args.transpose_w,
          .accumulate = args.accumulate});
  });
  return bench::to_doubles(c);
}

}  // namespace

TEST_CASE("a product with a 4-bit weight has the bits of the product with its dequantized values") {
  const bench::FourBitWeight weights[] = {
      {70, 66, {FourBitKind::nf4, 64}},          // blocks across rows
      {45, 33, {FourBitKind::fp4, 32, true}},    // odd rows
      {96, 1100, {FourBitKind::nf4, 64, true}},  // K above a block of the widened product
      {1030, 128, {FourBitKind::nf4, 4096}},     // several tiles of columns
  };
  for (const bench::FourBitWeight& weight : weights)
    for (const DType in : {DType::f32, DType::bf16, DType::f16})
      for (const DType out : {in, DType::f32})
        for (const bool transposed : {true, false})
          for (const int64_t M : {1, 4, 7, 16, 17, 70}) {
            CAPTURE(weight.out);
            CAPTURE(in);
            CAPTURE(out);
            CAPTURE(transposed);
            CAPTURE(M);
            Problem p(M, weight, in, out, in, transposed);
            p.args.accumulate = M % 2 != 0;
            CHECK(product(p.args, p) == dense_product(p.args, p));
          }
}

TEST_CASE("a product with several 4-bit weights has the bits of the product with one below the other") {
  for (const DType in : {DType::f32, DType::bf16})
    for (const bool transposed : {true, false})
      for (const int64_t M : {1, 9, 70}) {
        CAPTURE(in);
        CAPTURE(transposed);
        CAPTURE(M);
        Problem first(M, {600, 65, {FourBitKind::nf4, 64}}, in, in, in, transposed),
            second(M, {37, 65, {FourBitKind::nf4, 64}}, in, in, in, transposed),
            both(M, {1237, 65, {FourBitKind::nf4, 64}}, in, in, in, transposed);
        both.args.w = {first.args.w.front(), second.args.w.front(), first.args.w.front()};
        CHECK(product(both.args, both) == dense_product(both.args, both));
      }
}

TEST_CASE("a product with a 4-bit weight reports shapes and dtypes that do not fit") {
  Problem p(3, {8, 16, {FourBitKind::nf4, 64}}, DType::f32, DType::f32, DType::f32, true);
  const auto error_of = [&](const FourBitProduct& args) {
    StreamSet streams(Device::cpu(), {.planning = true});
    Arena scratch("scratch", Device::cpu());
    return test::error_of([&] { four_bit_product(streams.add("compute"), scratch, args); });
  };
  FourBitProduct args = p.args;
  args.transpose_w = false;
  CHECK(error_of(args) == "four_bit_product: c (3, 8) = a (3, 16) w (8, 16): shapes do not fit");
  args = p.args;
  args.compute = DType::u8;
  CHECK(error_of(args) ==
        "four_bit_product: c is f32, a is f32, compute is u8; they must be f32, bf16 or f16");
  args = p.args;
  args.bias = args.bias.slice(0, 7);
  CHECK(error_of(args) == "four_bit_product: bias is f32 (7), must be f32, bf16 or f16 (8)");
  args = p.args;
  args.w.front().codes = args.w.front().codes.slice(0, 63);
  CHECK(error_of(args) == "four_bit_product: codes is u8 (63), must be u8 with 64 elements");
}
