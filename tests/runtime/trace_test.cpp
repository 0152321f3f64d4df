#include "runtime/trace.h"

#include <cstdio>
#include <string>
#include <unistd.h>

#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/stream.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// The text that `work` writes to stderr.
template <class Work>
std::string stderr_of(Work&& work) {
  std::FILE* file = std::tmpfile();
  std::fflush(stderr);
  const int saved = dup(2);
  dup2(fileno(file), 2);
  work();
  std::fflush(stderr);
  dup2(saved, 2);
  close(saved);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text.push_back(static_cast<char>(c));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a trace has one named row per stream and one span per piece of work") {
  for (const StreamOrder order : {StreamOrder::in_order, StreamOrder::comm_late}) {
    Trace trace(3);
    StreamSet streams(Device::cpu(), {.order = order, .trace = &trace});
    Stream &compute = streams.add("compute"), &gather = streams.add("gather \"0\"", StreamRole::comm);
    gather.run("all_gather", [] {});
    compute.run("matmul", [] {});
    compute.run("norm", [] {});
    streams.sync_all();
    CHECK(trace.span_count() == 3);

    const nlohmann::json events = nlohmann::json::parse('[' + trace.names_json("clock \"9\"") + ',' +
                                                        trace.spans_json(0, 2, trace.start()) + ',' +
                                                        trace.spans_json(2, 2, trace.start()) + ']');
    CHECK(trace.spans_json(3, 2, trace.start()).empty());
    std::string rows, spans;
    for (const auto& event : events) {
      CHECK(event.at("pid") == 3);
      if (event.at("name") == "thread_name") rows += event.at("args").at("name").get<std::string>() + ";";
      if (event.at("name") == "process_labels") CHECK(event.at("args").at("labels") == "clock \"9\"");
      if (event.at("ph") != "X") continue;
      spans += event.at("name").get<std::string>() + str("@", event.at("tid"), ";");
      CHECK(event.at("dur") >= 0);
    }
    CHECK(rows == "compute;gather \"0\";");
    CHECK(spans == (order == StreamOrder::in_order ? "all_gather@1;matmul@0;norm@0;"
                                                   : "matmul@0;norm@0;all_gather@1;"));
  }
}

TEST_CASE("a stage is a span around its ops in orders where ops run at the call") {
  for (const StreamOrder order : {StreamOrder::in_order, StreamOrder::concurrent, StreamOrder::comm_late}) {
    Trace trace;
    StreamSet streams(Device::cpu(), {.order = order, .trace = &trace});
    Stream& compute = streams.add("compute");
    {
      const TraceSpan span = compute.span("forward", 7);
      compute.run("matmul", [] {});
    }
    streams.sync_all();
    const nlohmann::json spans = nlohmann::json::parse('[' + trace.spans_json(0, 9, trace.start()) + ']');
    const bool timed = order != StreamOrder::comm_late;
    REQUIRE(spans.size() == (timed ? 2 : 1));
    if (!timed) continue;
    CHECK(spans[0].at("name") == "matmul");
    CHECK(spans[1].at("name") == "forward 7");
    CHECK(spans[1].at("ts") <= spans[0].at("ts"));
    CHECK(spans[1].at("dur") >= spans[0].at("dur"));
  }
}

TEST_CASE("a span copies its name, and times are relative to the requested zero") {
  Trace trace;
  const auto begin = trace.start() + std::chrono::microseconds(250);
  {
    const std::string passing = "all_gather model.layers.7";
    trace.add_span(trace.add_row("gather"), passing, begin, begin + std::chrono::microseconds(40));
  }
  const auto json =
      nlohmann::json::parse(trace.spans_json(0, 1, trace.start() + std::chrono::microseconds(50)));
  CHECK(json.at("name") == "all_gather model.layers.7");
  CHECK(json.at("ts") == 200);
  CHECK(json.at("dur") == 40);
}

TEST_CASE("only rank 0 prints information, every rank prints warnings with its number") {
  const auto lines = [](int rank, LogLevel level) {
    return stderr_of([&] {
      configure_log(level, rank, 4);
      log_info("loss ", 1.5);
      log_warning("slow");
      configure_log(LogLevel::info);
    });
  };
  CHECK(lines(0, LogLevel::info) == "[rank 0] loss 1.5\n[rank 0] warning: slow\n");
  CHECK(lines(2, LogLevel::info) == "[rank 2] warning: slow\n");
  CHECK(lines(0, LogLevel::warning) == "[rank 0] warning: slow\n");
  CHECK(lines(0, LogLevel::quiet).empty());
}
