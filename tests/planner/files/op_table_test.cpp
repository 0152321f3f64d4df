#include "planner/files/cluster_file.h"
#include "planner/search/setting_search.h"
#include "planner/times/op_times.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const Cluster& h100() {
  static const Cluster cluster = usual_cluster(gpu_model("h100-80gb"));
  return cluster;
}

Cluster with_table(const std::string& cases) {
  write_whole_file("op_table.json", "{\"cases\":[" + cases + "]}");
  Cluster cluster = h100();
  cluster.measured_ops = read_op_table("op_table.json", cluster);
  return cluster;
}

std::string case_of(const std::string& op, const std::string& shape, double flops, double bytes,
                    double seconds) {
  return str("{\"op\":\"", op, "\",\"shape\":\"", shape, "\",\"dtype\":\"bf16\",\"flops\":", flops,
             ",\"bytes\":", bytes, ",\"seconds\":{\"median\":", seconds, "}}");
}

OpCall gemm(int64_t M, int64_t N, int64_t K, int64_t flags) {
  const double m = static_cast<double>(M), n = static_cast<double>(N), k = static_cast<double>(K);
  return {.name = "gemm",
          .shape = {M, N, K, flags},
          .dtype = DType::bf16,
          .flops = 2 * m * n * k,
          .bytes = 2 * (m * n + m * k + n * k)};
}

// Of a plan, whose documents have one token.
OpCall attention(int64_t rows) {
  return {.name = "attention_forward",
          .shape = {rows, 16, rows, 16, 128, rows, 1},
          .dtype = DType::bf16,
          .flops = 1,
          .bytes = static_cast<double>(rows) * 16 * 128 * 2 * 4};
}

double seconds(const Cluster& cluster, const OpCall& op, int64_t seq_len = 1) {
  return op_time(cluster, op, seq_len).seconds;
}

}  // namespace

TEST_CASE(
    "a measured op takes the measured time, and others of its kind the same part of the published one") {
  const OpCall measured = gemm(4096, 4096, 4096, 2), other = gemm(8192, 4096, 1024, 0);
  const Cluster cluster =
      with_table(case_of("gemm", "4096 x 4096 x 4096 b^T", measured.flops, measured.bytes, 1e-3));
  CHECK(seconds(cluster, measured) == doctest::Approx(1e-3).epsilon(1e-6));
  CHECK(seconds(cluster, other) / seconds(h100(), other) ==
        doctest::Approx(1e-3 / seconds(h100(), measured)).epsilon(1e-6));
  OpCall single = measured;
  single.dtype = DType::f32;
  CHECK(seconds(cluster, single) == seconds(h100(), single));
  const OpCall norm{.name = "rmsnorm_forward", .dtype = DType::bf16, .bytes = 1e8};
  CHECK(seconds(cluster, norm) == seconds(h100(), norm));
}

TEST_CASE("ops that memory bounds are compared by their bytes") {
  const Cluster cluster = with_table(case_of("add", "1000", 0, 1e6, 1e-5) + "," +
                                     case_of("add", "1000000 in place", 0, 1e9, 2e-3) +
                                     ",{\"op\":\"add\",\"dtype\":\"bf16\",\"skipped\":\"no kernel\"}");
  const auto add = [](double bytes) { return OpCall{.name = "add", .dtype = DType::bf16, .bytes = bytes}; };
  CHECK(seconds(cluster, add(1e6)) == doctest::Approx(1e-5).epsilon(0.01));
  CHECK(seconds(cluster, add(1e9)) == doctest::Approx(2e-3).epsilon(0.01));
}

TEST_CASE("attention is compared by the length of its sequences") {
  const auto timed = [](int64_t length, double factor) {
    const OpCall op = attention(16384);
    return case_of("attention_forward", str(16384 / length, '*', length, " x 16/16 x 128 causal"),
                   attention_flops(op, length), op.bytes, factor * seconds(h100(), op, length));
  };
  const Cluster cluster = with_table(timed(1024, 2) + "," + timed(8192, 0.5));
  const auto factor = [&](int64_t length) {
    return seconds(cluster, attention(16384), length) / seconds(h100(), attention(16384), length);
  };
  CHECK(factor(1024) == doctest::Approx(2).epsilon(0.05));
  CHECK(factor(8192) == doctest::Approx(0.5).epsilon(0.05));
  CHECK(factor(2048) > factor(4096));
}

TEST_CASE("a cluster file names a table of measured ops beside it") {
  const OpCall op = gemm(256, 256, 256, 0);
  with_table(case_of("gemm", "256 x 256 x 256", op.flops, op.bytes, 1e-2));
  write_whole_file("with_ops.toml", "[gpu]\nkind = \"h100-80gb\"\nops = \"op_table.json\"\n");
  const Cluster cluster = read_cluster("with_ops.toml");
  CHECK(seconds(cluster, op) == doctest::Approx(1e-2));
  CHECK(describe_rates(cluster).starts_with("ops measured in op_table.json"));
}

TEST_CASE("a product of the search's bound is no slower than a measured one") {
  const OpCall op = gemm(4096, 4096, 4096, 0);
  const Cluster cluster =
      with_table(case_of("gemm", "4096 x 4096 x 4096", op.flops, op.bytes, 0.5 * seconds(h100(), op)));
  CHECK(least_product_factor(cluster.measured_ops) == doctest::Approx(0.5));
  CHECK(least_product_factor({}) == 1);
}

TEST_CASE("the ops that an H100 was measured with take these times") {
  Cluster cluster = h100();
  cluster.measured_ops =
      read_op_table(str(kSourceDir, "/bench/results/h100-2026-11-27/ops-bf16.json"), cluster);
  CHECK(cluster.measured_ops.size() > 100);
  CHECK(seconds(cluster, gemm(8192, 8192, 8192, 0)) == doctest::Approx(1533.8e-6).epsilon(0.05));
  CHECK(seconds(cluster, gemm(8192, 14336, 4096, 2)) == doctest::Approx(1347e-6).epsilon(0.05));
  CHECK(seconds(cluster, attention(16384), 16384) == doctest::Approx(1839.5e-6).epsilon(0.1));
}

TEST_CASE("a file without measured ops is refused with its name and what it lacks") {
  const auto refused = [](const std::string& text) {
    write_whole_file("op_table.json", text);
    return test::error_of([] { read_op_table("op_table.json", h100()); });
  };
  CHECK(test::missing_from(refused("["), {"op_table.json", "bench --device cuda --json", "JSON object"}) ==
        "");
  CHECK(test::missing_from(refused("{\"steps\":[]}"), {"op_table.json", "\"cases\""}) == "");
  CHECK(test::missing_from(refused("{\"cases\":[{\"op\":\"add\"}]}"), {"op_table.json", "has a time"}) == "");
  CHECK(test::missing_from(refused("{\"cases\":[{\"op\":\"add\",\"seconds\":{\"median\":1}}]}"),
                           {"op_table.json", "bytes"}) == "");
  const auto refused_case = [&](const char* shape, double seconds) {
    return refused("{\"cases\":[" + case_of("attention_forward", shape, 1e9, 1e6, seconds) + "]}");
  };
  CHECK(refused_case("16*1024 x 16/16 x 128 causal", 1e-3).empty());
  CHECK(test::missing_from(refused_case("9000000000*9000000000 x 16/16 x 128", 1e-3),
                           {"op_table.json", "9000000000", "at most 2147483647"}) == "");
  for (const double seconds : {1e-30, 4000.0})
    CHECK(test::missing_from(refused_case("16*1024 x 16/16 x 128", seconds),
                             {"op_table.json", str(seconds), "from 1e-09 to 3600"}) == "");
}
