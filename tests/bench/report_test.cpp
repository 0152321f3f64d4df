// The output of the benchmark.

#include "bench/report.h"

#include <chrono>
#include <limits>

#include "bench/published_steps.h"
#include "bench/step_ops.h"
#include "runtime/json.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;

namespace {

Result timed() {
  Result r;
  r.op = "rmsnorm_forward";
  r.shape = "8 x 16";
  r.dtype = DType::bf16;
  r.accuracy = {.error = 1e-3, .tolerance = 1e-2, .worst = "rmsnorm_forward 1 x 1 bf16"};
  r.seconds = {.median = 0.1 + 0.2, .p10 = 0.25, .p90 = 0.5};
  r.bytes = 3e9;
  r.flops = 6e8;
  r.copy_rate = 2e10;
  r.samples = 20;
  return r;
}

Result failed() {
  Result r = timed();
  r.accuracy.error = 0.5;
  return r;
}

Ceilings ceilings() {
  return {.copy = Ceiling({{"nothing", 1, [] { return 1.0; }}})};
}

Case case_named(const char* op, const char* shape) {
  Case c;
  c.op = op;
  c.shape = shape;
  c.dtype = DType::f32;
  return c;
}

std::vector<size_t> bars(const std::string& line) {
  std::vector<size_t> at;
  for (size_t i = 0; i < line.size(); ++i)
    if (line[i] == '|' || line[i] == '~') at.push_back(i);
  return at;
}

}  // namespace

TEST_CASE("numbers print with four significant digits and no exponent") {
  CHECK(digits(0) == "0.000");
  CHECK(digits(0.987, 3) == "0.99");
  CHECK(digits(9.996, 3) == "10.0");
  CHECK(digits(1.23456) == "1.235");
  CHECK(digits(9.99996) == "10.00");
  CHECK(digits(12.3456) == "12.35");
  CHECK(digits(123.456) == "123.5");
  CHECK(digits(1234.56) == "1235");
  CHECK(digits(1234567) == "1234567");
}

TEST_CASE("the columns of all lines align with the header, within 140 characters") {
  const Table table({case_named("rmsnorm_forward", "8 x 16"),
                     case_named("cross_entropy_backward", "1024+1024+1024+1024 x 12/12 x 64 causal")});
  Result slow = timed(), quick = timed(), products = timed();
  slow.seconds = {.median = 0.987654, .p10 = 0.9, .p90 = 0.999999};
  slow.disturbed = true;
  quick.bytes = 1;
  quick.flops = 1;
  quick.seconds = {.median = 1e-7, .p10 = 1e-7, .p90 = 1e-7};
  products.matrix_bound = true;
  products.matrix_rate = 1e12;
  products.flops = 3e11;
  for (const Result& r : {timed(), slow, quick, products}) {
    const std::string line = table.line(r);
    CAPTURE(line);
    CHECK(line.size() == table.header().size());
    CHECK(bars(line) == bars(table.header()));
  }
  CHECK(table.header().size() <= 140);
}

TEST_CASE("a star marks the ceiling that bounds the case") {
  const Table table({case_named("rmsnorm_forward", "8 x 16")});
  CHECK(table.line(timed()).find("50%*") != std::string::npos);
  Result r = timed();
  r.matrix_bound = true;
  r.matrix_rate = 1e10;
  const std::string line = table.line(r);
  CHECK(line.find("50% ") != std::string::npos);
  CHECK(line.find("20%*") != std::string::npos);
}

TEST_CASE("the floor of a matrix-bound case is the larger of both floors") {
  Result r = timed();
  CHECK(r.floor_seconds() == doctest::Approx(0.15));
  r.matrix_bound = true;
  r.matrix_rate = 1e9;
  CHECK(r.floor_seconds() == doctest::Approx(0.6));
  r.matrix_rate = 1e12;
  CHECK(r.floor_seconds() == doctest::Approx(0.15));
}

TEST_CASE("a failed or skipped case prints its reason and no time") {
  const Table table({case_named("rmsnorm_forward", "8 x 16")});
  CHECK(table.line(failed()) ==
        "rmsnorm_forward 8x16  bf16 | FAILED: error 0.5, tolerance 0.01 (rmsnorm_forward 1 x 1 bf16)");
  Result skipped = timed();
  skipped.skipped = "no CUDA kernel";
  CHECK(table.line(skipped) == "rmsnorm_forward 8x16  bf16 | skipped: no CUDA kernel");
}

TEST_CASE("the summary counts timed, failed and skipped cases, and warns about disturbed ones") {
  Result skipped = timed(), early = timed(), disturbed = timed();
  skipped.skipped = "no CUDA kernel";
  early.out_of_time = true;
  disturbed.disturbed = true;
  const std::string text = summary_lines({timed(), failed(), skipped, early, disturbed});
  CHECK(text.starts_with("3 timed, 1 failed, 1 skipped\n"));
  CHECK(text.find("1 reached the time limit") != std::string::npos);
  CHECK(text.find("other programs used the processors during 1 case") != std::string::npos);
  CHECK(summary_lines({skipped}) == "0 timed, 0 failed, 1 skipped\n");
}

TEST_CASE("the summary lists the cases farthest below their ceiling") {
  Result slow = timed(), products = timed();
  slow.copy_rate *= 5;
  products.matrix_bound = true;
  products.matrix_rate = 2e10;
  CHECK(
      summary_lines({timed(), slow, timed(), products}) ==
      "4 timed, 0 failed, 0 skipped\n"
      "of the copy bandwidth: median 50%; least 10% rmsnorm_forward 8 x 16 bf16, 50% rmsnorm_forward 8 x 16 "
      "bf16, 50% rmsnorm_forward 8 x 16 bf16\n"
      "of the matrix peak: median 10%; least 10% rmsnorm_forward 8 x 16 bf16\n");
}

TEST_CASE("JSON has full precision, and no time for failed cases") {
  Result infinite = failed(), skipped = timed();
  infinite.accuracy.error = std::numeric_limits<double>::infinity();
  skipped.skipped = "no CUDA kernel";
  const Machine machine{.device = "cpu",
                        .processor = "one \"quoted\"",
                        .threads = 3,
                        .compiler = "",
                        .build_type = "",
                        .commit = ""};
  const auto json = nlohmann::json::parse(to_json(machine, ceilings(), {timed(), infinite, skipped}));
  CHECK(json["machine"]["processor"] == "one \"quoted\"");
  CHECK(json["machine"]["threads"] == 3);
  CHECK(json["ceilings"]["copy"]["how"] == "nothing");
  REQUIRE(json["cases"].size() == 3);
  const auto& first = json["cases"][0];
  CHECK(first["op"] == "rmsnorm_forward");
  CHECK(first["dtype"] == "bf16");
  CHECK(first["passed"] == true);
  CHECK(first["seconds"]["median"].get<double>() == 0.1 + 0.2);
  CHECK(first["copy_share"].get<double>() == 3e9 / (0.1 + 0.2) / 2e10);
  CHECK_FALSE(first.contains("matrix_rate"));
  CHECK(json["cases"][1]["passed"] == false);
  CHECK(json["cases"][1]["accuracy"]["error"].is_null());
  CHECK_FALSE(json["cases"][1].contains("seconds"));
  CHECK(json["cases"][2]["skipped"] == "no CUDA kernel");
}

TEST_CASE("a step is compared with the published ones of its model, and what differs is said") {
  const StepResult same{.model = "qwen2.5-0.5b",
                        .compute = "bf16",
                        .seq_len = 1024,
                        .tokens = 32 * 1024 * 16,
                        .micro_steps = 16,
                        .seconds = {.median = 3.504}};
  const std::string like_for_like = published_lines(same, "NVIDIA H100 80GB HBM3");
  CAPTURE(like_for_like);
  CHECK(test::missing_from(
            like_for_like,
            {"products in bf16, 32 x 1024 tokens x 16: 149626 tokens/s; ours / LLM.Q 1.000\n", "FP8",
             "164612 tokens/s; ours / LLM.Q 0.909\n", "moments and gradients are bf16"}) == "");
  StepResult other = same;
  other.tokens = 16 * 1024, other.micro_steps = 1;
  CHECK(test::missing_from(published_lines(other, "NVIDIA H200"),
                           {"but of 16 x 1024 tokens x 1", "but on NVIDIA H200, not on an H100"}) == "");
  CHECK(test::missing_from(test::error_of([] { check_published("tiny"); }),
                           {"tiny", "qwen2.5-0.5b", "qwen2.5-1.5b"}) == "");
}

TEST_CASE("the ops of traced steps are summed by their shape, those of the most time first") {
  using std::chrono::microseconds;
  Trace trace;
  const int row = trace.add_row("compute");
  const auto begin = Trace::Clock::now();
  const OpCall product{
      .name = "gemm", .shape = {16, 32, 8, 1 + 4 + 16}, .dtype = DType::bf16, .flops = 8192, .bytes = 900},
      add{.name = "add", .shape = {1000}, .dtype = DType::f32, .bytes = 12000};
  for (int step = 0; step < 2; ++step) {
    trace.add_span(row, "add", begin, begin + microseconds(2), &add);
    for (const int us : {3, 5}) trace.add_span(row, "gemm", begin, begin + microseconds(us), &product);
    trace.add_span(row, "forward 0", begin, begin + microseconds(10));
  }
  const std::vector<StepOp> ops = step_ops(trace, 2);
  REQUIRE(ops.size() == 2);
  CHECK(ops[0].name == "gemm");
  CHECK(ops[0].shape == "16 x 32 x 8 a^T + into f32");
  CHECK(ops[0].calls == 2);
  CHECK(ops[0].seconds == doctest::Approx(8e-6));
  CHECK(ops[1].shape == "1000");
  CHECK(ops[1].calls == 1);
  const std::string table = step_ops_table(ops, 20e-6);
  CAPTURE(table);
  CHECK(test::missing_from(table, {"16 x 32 x 8 a^T + into f32", "bf16", "40.0",
                                   "all ops 0.01 ms of a step of 0.02 ms"}) == "");
}

TEST_CASE("bench fails if its output cannot be written") {
  const test::Finished ran = test::run_command("@bench --help >/dev/full");
  CHECK(ran.exit_code == 1);
  CHECK_MESSAGE(ran.output.find("bench: cannot write the output") != std::string::npos, ran.output);
}
