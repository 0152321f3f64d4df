#include "planner/times/op_times.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

struct Case {
  const char* op;
  int64_t sequences, length, heads, key_heads, head_size;
  bool causal;
};

OpCall call_of(const Case& c) {
  const int64_t rows = c.sequences * c.length;
  return {.name = c.op,
          .shape = {rows, c.heads, rows, c.key_heads, c.head_size, rows, c.causal ? 1 : 0},
          .dtype = DType::bf16};
}

double microseconds(const Case& c) {
  return 1e6 * hopper_attention_seconds(call_of(c), c.length, 989e12, 132);
}

}  // namespace

TEST_CASE(
    "attention on Hopper takes the times that were measured, of long and short sequences and of shared "
    "keys") {
  struct Measured {
    Case of;
    double microseconds;
  };
  for (const auto& [of, expected] : {Measured{{"attention_forward", 16, 1024, 16, 16, 128, true}, 215.6},
                                     {{"attention_backward", 8, 2048, 32, 32, 64, true}, 1588.3},
                                     {{"attention_forward", 4, 4096, 32, 32, 64, true}, 741.2},
                                     {{"attention_forward", 1, 16384, 16, 16, 128, false}, 3640.9},
                                     {{"attention_backward", 1, 8192, 64, 8, 128, true}, 8271.1},
                                     {{"attention_backward", 2, 2048, 8, 2, 128, true}, 345.7},
                                     {{"attention_forward", 4, 1024, 12, 12, 64, true}, 41.7},
                                     {{"attention_forward", 1, 1024, 8, 8, 128, true}, 19.1},  // of an H200
                                     {{"attention_backward", 1, 1024, 8, 8, 128, true}, 72.1}}) {
    CAPTURE(of.op);
    CAPTURE(of.length);
    CHECK(microseconds(of) == doctest::Approx(expected).epsilon(0.12));
  }
}

TEST_CASE("tiles that leave multiprocessors idle take as long as the longest of them") {
  const Case four{"attention_forward", 1, 1024, 4, 4, 128, true},
      eight{"attention_forward", 1, 1024, 8, 8, 128, true};
  CHECK(microseconds(four) == microseconds(eight));
  const Case many{"attention_forward", 16, 1024, 8, 8, 128, true},
      twice{"attention_forward", 32, 1024, 8, 8, 128, true};
  CHECK(microseconds(twice) / microseconds(many) > 1.8);
}

TEST_CASE("a window shortens attention, and attention counts the flops of the keys that it leaves") {
  OpCall op = call_of({"attention_forward", 1, 8192, 16, 16, 128, true});
  const double all = attention_flops(op, 8192);
  CHECK(all == doctest::Approx(4.0 * 8192 * 16 * 128 * 4096));
  const double seconds = hopper_attention_seconds(op, 8192, 989e12, 132);
  op.shape[6] = 1 + 1024;
  CHECK(attention_flops(op, 8192) == doctest::Approx(all * 1024 * (1 - 1024 / 16384.0) / 4096));
  CHECK(hopper_attention_seconds(op, 8192, 989e12, 132) < 0.5 * seconds);
}
