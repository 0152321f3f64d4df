#include "train/report/metrics.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sys/resource.h>
#include <sys/stat.h>

#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr char kPath[] = "metrics_test.jsonl";
using Limits = std::numeric_limits<double>;

const std::string kGoodLine =
    R"({"step":1,"data_step":2,"loss":2.5,"grad_norm":1.0,"lr":0.001,"tokens":64,"tokens_per_second":100.0,)"
    R"("step_seconds":0.64,"mfu":0.5,"mfu_causal":0.25,"memory_bytes":1024})"
    "\n";

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

StepMetrics written_and_read(const StepMetrics& m) {
  MetricsFile(kPath).write(m);
  const std::vector<StepMetrics> all = read_metrics(kPath);
  REQUIRE(all.size() == 1);
  return all[0];
}

std::string error_of_text(const std::string& text) {
  std::ofstream(kPath, std::ios::binary) << text;
  return test::error_of([] { read_metrics(kPath); });
}

// The good line with one piece of text replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string line = kGoodLine;
  REQUIRE(line.find(from) != line.npos);
  return line.replace(line.find(from), from.size(), to);
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace

TEST_CASE("every double round-trips exactly") {
  std::vector<double> values{0.0,
                             -0.0,
                             0.1,
                             1.0 / 3,
                             1e300,
                             123456789012345678.0,
                             Limits::min(),
                             Limits::denorm_min(),
                             Limits::max(),
                             Limits::lowest(),
                             1 + Limits::epsilon(),
                             Limits::infinity(),
                             -Limits::infinity()};
  uint64_t bits = 0x9e3779b97f4a7c15;
  for (int i = 0; i < 2000; ++i) {  // any bits except NaN
    bits = bits * 6364136223846793005 + 1442695040888963407;
    if (const double value = std::bit_cast<double>(bits); !std::isnan(value)) values.push_back(value);
  }
  {
    MetricsFile file(kPath);
    for (const double v : values) file.write({.loss = v, .tokens_per_second = v, .eval_loss = v});
  }
  const std::vector<StepMetrics> all = read_metrics(kPath);
  REQUIRE(all.size() == values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(values[i]);
    CHECK(same_bits(all[i].loss, values[i]));
    CHECK(same_bits(all[i].tokens_per_second, values[i]));
    CHECK(same_bits(*all[i].eval_loss, values[i]));
  }
}

TEST_CASE("every field round-trips") {
  const StepMetrics m = written_and_read({.step = INT64_MAX,
                                          .data_step = 17,
                                          .loss = 1,
                                          .grad_norm = 2,
                                          .lr = 3,
                                          .tokens = 4,
                                          .tokens_per_second = 5,
                                          .step_seconds = 6,
                                          .all_tokens_per_second = 5.5,
                                          .mfu = 7,
                                          .mfu_causal = 8,
                                          .mfu_is_bound = true,
                                          .mfu_published = 7.5,
                                          .memory_bytes = 9,
                                          .skipped = true,
                                          .loss_scale = 10.0,
                                          .eval_loss = 11.0,
                                          .predicted_seconds = 11.5,
                                          .exposed_comm_seconds = 12.0,
                                          .save_seconds = 13.0,
                                          .saved_step = 14,
                                          .saved_bytes = 15,
                                          .saved_seconds = 16.0});
  CHECK(m.step == INT64_MAX);
  CHECK(m.data_step == 17);
  CHECK(m.loss == 1);
  CHECK(m.grad_norm == 2);
  CHECK(m.lr == 3);
  CHECK(m.tokens == 4);
  CHECK(m.tokens_per_second == 5);
  CHECK(m.step_seconds == 6);
  CHECK(m.all_tokens_per_second == 5.5);
  CHECK(m.mfu == 7);
  CHECK(m.mfu_causal == 8);
  CHECK(m.mfu_is_bound);
  CHECK(m.mfu_published == 7.5);
  CHECK(m.memory_bytes == 9);
  CHECK(m.skipped);
  CHECK(m.loss_scale == 10.0);
  CHECK(m.eval_loss == 11.0);
  CHECK(m.predicted_seconds == 11.5);
  CHECK(m.exposed_comm_seconds == 12.0);
  CHECK(m.save_seconds == 13.0);
  CHECK(m.saved_step == 14);
  CHECK(m.saved_bytes == 15);
  CHECK(m.saved_seconds == 16.0);
}

TEST_CASE("a missing value has no key") {
  const StepMetrics m = written_and_read({.step = 1,
                                          .data_step = 2,
                                          .loss = 2.5,
                                          .grad_norm = 1,
                                          .lr = 0.001,
                                          .tokens = 64,
                                          .tokens_per_second = 100,
                                          .step_seconds = 0.64,
                                          .mfu = 0.5,
                                          .mfu_causal = 0.25,
                                          .memory_bytes = 1024});
  CHECK(text_of(kPath) == kGoodLine);
  CHECK_FALSE(m.skipped);
  CHECK_FALSE(m.mfu_published.has_value());
  CHECK_FALSE(m.loss_scale.has_value());
  CHECK_FALSE(m.eval_loss.has_value());
  CHECK_FALSE(m.saved_step.has_value());
}

TEST_CASE("a NaN round-trips as JSON that any parser reads") {
  CHECK(std::isnan(written_and_read({.loss = Limits::quiet_NaN()}).loss));
  CHECK(text_of(kPath).find(R"("loss":"nan")") != std::string::npos);
}

TEST_CASE("a line can be read as soon as it is written") {
  MetricsFile file(kPath);
  CHECK(read_metrics(kPath).empty());
  for (size_t i = 1; i <= 3; ++i) {
    file.write({.step = static_cast<int64_t>(i)});
    CHECK(read_metrics(kPath).size() == i);
  }
}

TEST_CASE("a truncated last line is reported by its number") {
  for (size_t length = 1; length + 1 < kGoodLine.size(); ++length) {
    CAPTURE(length);
    const std::string error = error_of_text(kGoodLine + kGoodLine + kGoodLine.substr(0, length));
    CHECK(error.starts_with("metrics_test.jsonl:3: not JSON at byte "));
    CHECK(error.ends_with("; the line is cut off or damaged"));
  }
}

TEST_CASE("lines are read up to a step, whatever follows it") {
  const auto line = [](int64_t data_step) { return to_json({.step = 1, .data_step = data_step}) + '\n'; };
  const auto last_of = [&](const std::string& text, int64_t most) {
    std::ofstream(kPath, std::ios::binary) << text;
    const std::vector<StepMetrics> lines = read_metrics_until(kPath, most);
    return lines.empty() ? 0 : lines.back().data_step;
  };
  CHECK(last_of(line(1) + line(2) + "garbage\n", 2) == 2);
  CHECK(last_of(line(1) + line(2) + line(4), 3) == 2);
  CHECK(last_of(line(1) + line(2).substr(0, 20), 2) == 1);  // its writer died
  CHECK(last_of(line(2), 1) == 0);
  CHECK(last_of("", 1) == 0);
  CHECK(test::error_of([&] {
          last_of(line(1) + "garbage\n", 2);
        }).starts_with("metrics_test.jsonl:2: not JSON"));
}

TEST_CASE("an invalid line is an error with file, line, key and value") {
  const std::string at = "metrics_test.jsonl:1: ";
  CHECK(error_of_text("[1]\n") == at + "must be a JSON object");
  CHECK(error_of_text("\n").starts_with(at + "not JSON at byte "));
  CHECK(error_of_text(changed("\"lr\":0.001,", "")) == at + "lr is missing");
  CHECK(error_of_text(changed("\"lr\"", "\"rate\"")) == at + "lr is missing");
  CHECK(error_of_text(changed("\"lr\"", "\"rate\":1,\"lr\"")) == at + "unknown key rate");
  CHECK(error_of_text(changed("2.5", "null")) ==
        at + R"(loss is null, must be a number, "nan", "inf" or "-inf")");
  CHECK(error_of_text(changed("2.5", "[[2.5]]")) == at + "loss must be a single value");
  CHECK(error_of_text(changed("2.5", "1e999")) == at + "a number is too large for a double");
  CHECK(error_of_text(changed("64,", "6.5,")) == at + "tokens is 6.5, must be a whole number below 2^63");
  CHECK(error_of_text(changed("64,", "9223372036854775808,")) ==
        at + "tokens is 9223372036854775808, must be a whole number below 2^63");
  CHECK(error_of_text(changed("1024", "1024,\"skipped\":1")) == at + "skipped is 1, must be true or false");
}

TEST_CASE("an unreadable file is an error that names it") {
  CHECK(test::error_of([] { read_metrics("no/metrics.jsonl"); }) ==
        "no/metrics.jsonl: cannot open: No such file or directory");
  CHECK(test::error_of([] { MetricsFile("no/metrics.jsonl"); }) ==
        "no/metrics.jsonl: cannot write: No such file or directory");
}

TEST_CASE("lines that a full disk rejects are written once there is space again") {
  survive_file_limits();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  MetricsFile file(kPath);
  file.write({.step = 1});
  const rlimit full{.rlim_cur = text_of(kPath).size() + 50, .rlim_max = before.rlim_max};  // half a line
  REQUIRE(setrlimit(RLIMIT_FSIZE, &full) == 0);
  file.write({.step = 2});
  file.write({.step = 3});
  CHECK(text_of(kPath).size() == full.rlim_cur);
  CHECK(read_metrics_until(kPath, 10).size() == 1);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  file.write({.step = 4});
  const std::vector<StepMetrics> all = read_metrics(kPath);
  REQUIRE(all.size() == 4);
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].step == static_cast<int64_t>(i) + 1);
}

TEST_CASE("metrics are neither read from a pipe nor written to one") {
  const std::string name = "metrics_pipe";
  REQUIRE(mkfifo(name.c_str(), 0600) == 0);
  CHECK(test::error_of([&] { read_metrics(name); }) == name + ": not a regular file");
  CHECK(test::error_of([&] { read_metrics_until(name, 1); }) == name + ": not a regular file");
  CHECK(test::error_of([&] { MetricsFile file(name); }) ==
        name + ": cannot write: is a device, a pipe or a socket, must be a regular file");
}

TEST_CASE("values of files have keys with their names, which are read back in order") {
  StepMetrics m{.step = 1, .data_step = 1};
  m.file_losses = {{"web", 2.5}, {"a/code", 1.0 / 3}, {"code", Limits::quiet_NaN()}};
  m.file_targets = {{"web", 64}, {"a/code", int64_t{1} << 60}, {"code", 1}};
  m.file_eval_losses = {{"held-out", 7.5}};
  const std::string line = to_json(m);
  CHECK(test::missing_from(line, {"\"loss/web\":2.5", "\"loss/a/code\":0.333", "\"loss/code\":\"nan\"",
                                  "\"targets/web\":64,", "\"eval_loss/held-out\":7.5"}) == "");
  const StepMetrics read = written_and_read(m);
  REQUIRE(read.file_losses.size() == 3);
  CHECK(read.file_losses[1].name == "a/code");
  CHECK(read.file_losses[1].value == 1.0 / 3);
  CHECK(read.file_targets[1].value == int64_t{1} << 60);
  CHECK(read.file_eval_losses[0].name == "held-out");
  CHECK(to_json(read) == line);
  bool found = false;
  for (const auto& [key, value] : numbers_of(m)) found = found || (key == "loss/web" && value == 2.5);
  CHECK(found);
  CHECK(error_of_text(changed("\"mfu\":0.5", "\"loss/\":0.5,\"mfu\":0.5")).find("unknown key loss/") !=
        std::string::npos);
  CHECK(error_of_text(changed("\"mfu\":0.5", "\"targets/a\":0.5,\"mfu\":0.5")).find("targets/a is 0.5") !=
        std::string::npos);
}

TEST_CASE("the metrics of experts are the largest load, the mean entropy and the number of unused ones") {
  const auto values = [](const std::vector<double>& counts, int64_t experts) {
    std::vector<double> all;
    for (const NamedValue<double>& of : expert_metrics(counts, experts)) all.push_back(of.value);
    return all;
  };
  CHECK(values({4, 4, 4, 4}, 4) == std::vector<double>{1, 1, 0});
  // A block without experts, one whose tokens all go to one expert, and a balanced one.
  const std::vector<double> uneven = values({0, 0, 0, 0, 8, 0, 0, 0, 2, 2, 2, 2}, 4);
  CHECK(uneven == std::vector<double>{4, 0.5, 3});
  CHECK(values({5, 5}, 1) == std::vector<double>{1, 1, 0});
  CHECK(values({0, 0}, 2).empty());
}
