// The picture of a trace, from a run of two ranks and from spans made by hand.

#include "train/report/trace_picture.h"

#include <filesystem>

#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

int64_t count_of(const std::string& text, const std::string& word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Rank 0's steps of 10, 40 and 20 us, each with a forward pass and a gather.
void add_three_steps(Trace& trace) {
  const int compute = trace.add_row("compute"), gather = trace.add_row("gather"),
            steps = trace.add_row("steps");
  int at = 0, number = 0;
  for (const int length : {10, 40, 20}) {
    const auto time = [&](int us) { return trace.start() + std::chrono::microseconds(at + us); };
    trace.add_span(compute, "gemm", time(2), time(4));
    trace.add_span(compute, str("forward ", number), time(1), time(5));
    trace.add_span(gather, str("all_gather <", number, ">"), time(0), time(3));
    trace.add_span(steps, str("step ", ++number), time(0), time(length));
    at += length;
  }
}

}  // namespace

TEST_CASE("the picture shows the step of median length, and no single ops") {
  fs::create_directories("picture");
  World world;
  Trace trace;
  add_three_steps(trace);
  write_trace_picture("picture/overlap.svg", trace, world, {});
  const std::string svg = test::read_file("picture/overlap.svg");
  // Of 40 and 20: the first step does not count.
  CHECK(svg.find(">step 2, ") != std::string::npos);
  CHECK(count_of(svg, "<title>forward 1, 4 us</title>") == 1);
  CHECK(count_of(svg, "<title>all_gather &lt;1>, 3 us</title>") == 1);
  CHECK(count_of(svg, "<title>") == 2);
}

TEST_CASE("a predicted step is drawn below the real one, with the same begin and the same scale") {
  fs::create_directories("picture");
  World world;
  Trace trace;
  add_three_steps(trace);
  StepTimeline predicted{.ranks = {}, .what = "simulated, of one rank"};
  Trace& simulated = *predicted.ranks.emplace_back(std::make_unique<Trace>(0));
  const auto time = [&](int us) { return simulated.start() + std::chrono::microseconds(us); };
  simulated.add_span(simulated.add_row("compute"), "forward 7", time(0), time(80));
  simulated.add_span(simulated.add_row("steps"), "step 1", time(0), time(80));
  write_trace_picture("picture/both.svg", trace, world, {}, &predicted);
  const std::string svg = test::read_file("picture/both.svg");
  CHECK(test::missing_from(svg, {">step 2, 0.0 ms, on 1 rank; predicted 0.1 ms (simulated, of one rank)<",
                                 ">predicted<", "<title>forward 7, 80 us</title>"}) == "");
  // The title of a span follows its rectangle.
  const auto box_of = [&](const std::string& title, const std::string& attribute) {
    const size_t box = svg.rfind("<rect ", svg.find("<title>" + title));
    return std::stod(svg.substr(svg.find(attribute + "=\"", box) + attribute.size() + 2));
  };
  CHECK(box_of("forward 7", " y") > box_of("forward 1", " y"));
  // The real pass begins 1 us into a picture of 80 us.
  const double scale = (box_of("forward 7", " width") + 0.5) / 80;
  CHECK(box_of("forward 1", " x") - box_of("forward 7", " x") == doctest::Approx(scale).epsilon(0.1));
  CHECK(box_of("forward 1", " width") + 0.5 == doctest::Approx(4 * scale).epsilon(0.05));
}

TEST_CASE("the rows of two ranks that offload do not overlap in the picture") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("picture_offload");
  const test::Finished run = workshop.train(
      2, "--run.trace=true --parallel.offload=true --train.steps=2 --train.total_batch_size=4");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const std::string svg = test::read_file(workshop.file("runs/default/overlap.svg"));
  std::vector<double> tops;
  const std::string track = "<rect class=\"track\"";
  for (size_t at = svg.find(track); at != svg.npos; at = svg.find(track, at + 1))
    tops.push_back(std::stod(svg.substr(svg.find(" y=\"", at) + 4)));
  REQUIRE(tops.size() == 8);
  for (size_t i = 1; i < tops.size(); ++i) CHECK(tops[i] >= tops[i - 1] + 20);  // the height of a row
}

TEST_CASE("a picture of a trace without a step is an error that names the file") {
  World world;
  CHECK(test::error_of([&] { write_trace_picture("picture/empty.svg", Trace(), world, {}); }) ==
        "picture/empty.svg: the trace contains no step to draw");
}
