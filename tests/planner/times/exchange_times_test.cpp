#include "planner/times/exchange_times.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

const Cluster& h100() {
  static const Cluster cluster = usual_cluster(gpu_model("h100-80gb"));
  return cluster;
}

double seconds(const char* verb, double bytes, const Members& members, const Cluster& c = h100()) {
  return exchange_time(c, verb, bytes, members).seconds;
}

constexpr double kMiB = 1 << 20;

}  // namespace

TEST_CASE("a large gather takes the time of its bytes over the links of a node or the cards between nodes") {
  const double bytes = 4096 * kMiB;
  CHECK(seconds("all_gather", bytes, {.ranks = 8, .on_node = 8}) ==
        doctest::Approx(bytes * 7 / 8 / (450e9 * 0.81)).epsilon(0.01));
  // A ring over 4 nodes uses all 8 cards of each, which are slower than the links.
  CHECK(seconds("all_gather", bytes, {.ranks = 32, .on_node = 8, .reach = 4}) ==
        doctest::Approx(bytes * 31 / 32 / std::min(450e9 * 0.81, 8 * 48.5e9 * 0.96)).epsilon(0.02));
  // One rank of each node has one card.
  CHECK(seconds("all_gather", bytes, {.ranks = 4, .on_node = 1, .reach = 4}) ==
        doctest::Approx(bytes * 3 / 4 / (48.5e9 * 0.96)).epsilon(0.01));
}

TEST_CASE("a small gather takes the time of its steps") {
  const double least = seconds("all_gather", 1024, {.ranks = 8, .on_node = 8});
  CHECK(least == doctest::Approx(14e-6 + 7 * 1.9e-6).epsilon(0.01));
  CHECK(seconds("all_gather", 1024, {.ranks = 64, .on_node = 8, .reach = 8}) > 3 * least);
}

TEST_CASE("an all-to-all over nodes sends what leaves a node through one card for each GPU") {
  const double bytes = 1024 * kMiB;
  CHECK(seconds("all_to_all", bytes, {.ranks = 8, .on_node = 8}) ==
        doctest::Approx(bytes * 7 / 8 / (450e9 * 0.81)).epsilon(0.02));
  CHECK(seconds("all_to_all", bytes, {.ranks = 32, .on_node = 8, .reach = 4}) ==
        doctest::Approx(bytes * 24 / 32 / (48.5e9 * 0.9)).epsilon(0.02));
}

TEST_CASE("between processors, a reduce-scatter takes its own measured rate") {
  Cluster c = h100();
  c.cpu = CpuRates{.reduces = 2e9};
  const Members members{.ranks = 4, .on_node = 4};
  CHECK(seconds("reduce_scatter", 64 * kMiB, members, c) ==
        doctest::Approx(1e-6 * c.link_step_us + 64 * kMiB * 3 / 4 / 2e9).epsilon(1e-6));
  CHECK(seconds("all_gather", 64 * kMiB, members, c) == seconds("all_gather", 64 * kMiB, members));
}

TEST_CASE("exchanges take longer with less bandwidth and more oversubscription") {
  const Members wide{.ranks = 64, .on_node = 8, .reach = 8};
  for (const char* verb : {"all_gather", "all_to_all", "reduce_scatter"}) {
    CAPTURE(verb);
    double last = 0;
    for (const double gbps : {400.0, 48.5, 20.0, 5.0}) {
      Cluster c = h100();
      c.nic_gbps = gbps;
      const double time = seconds(verb, 64 * kMiB, wide, c);
      CHECK(time > last * 0.999);
      last = time;
    }
    Cluster crowded = h100();
    crowded.tiers = {{4, 1}, {1024, 3}};
    CHECK(seconds(verb, 64 * kMiB, wide, crowded) > seconds(verb, 64 * kMiB, wide));
    CHECK(seconds(verb, 64 * kMiB, {.ranks = 32, .on_node = 8, .reach = 4}, crowded) ==
          seconds(verb, 64 * kMiB, {.ranks = 32, .on_node = 8, .reach = 4}));
  }
}
