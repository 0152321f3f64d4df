#include "planner/files/cluster_file.h"

#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

Cluster cluster_of(const std::string& text) {
  write_whole_file("cluster_test.toml", text);
  return read_cluster("cluster_test.toml");
}

constexpr const char* kWhole = R"([gpu]
kind = "h100-80gb"
power_watts = 500
price_per_hour = 2.5
[node]
gpus = 4
link = { kind = "pcie", gbps = 60, efficiency = 0.7, step_us = 6 }
host = { gbps = 50, gpus_per_switch = 1, update_gbps = 10, issue_us = 3 }
[network]
nics_per_node = 2
gbps = 24
efficiency = 0.9
step_us = 20
tiers = [ { nodes = 32, oversubscription = 1 }, { nodes = 2048, oversubscription = 2.5 } ]
[jitter]
fixed = 0.01
step = 0.02
)";

}  // namespace

TEST_CASE("a cluster file sets every number of its machines") {
  const Cluster c = cluster_of(kWhole);
  CHECK(c.source == "cluster_test.toml");
  CHECK(std::string(c.gpu.name) == "h100-80gb");
  CHECK(c.power_watts == 500);
  CHECK(c.price_per_hour == 2.5);
  CHECK(c.node_gpus == 4);
  CHECK(!c.nvlink);
  CHECK(c.link_gbps == 60);
  CHECK(c.link_efficiency == 0.7);
  CHECK(c.link_step_us == 6);
  CHECK(c.host_gbps == 50);
  CHECK(c.gpus_per_switch == 1);
  CHECK(c.update_gbps == 10);
  CHECK(c.issue_us == 3);
  CHECK(c.nics_per_node == 2);
  CHECK(c.nic_gbps == 24);
  CHECK(c.nic_efficiency == 0.9);
  CHECK(c.network_step_us == 20);
  CHECK(c.jitter_fixed == 0.01);
  CHECK(c.jitter_step == 0.02);
  CHECK(c.oversubscription(32) == 1);
  CHECK(c.oversubscription(33) == 2.5);
  CHECK(c.oversubscription(5000) == 2.5);
}

TEST_CASE("a cluster file that names a GPU alone has its usual node and network") {
  const Cluster c = cluster_of("[gpu]\nkind = \"a100-80gb\"\n"),
                usual = usual_cluster(gpu_model("a100-80gb"));
  CHECK(c.link_gbps == usual.link_gbps);
  CHECK(c.nic_gbps == usual.nic_gbps);
  CHECK(c.node_gpus == 8);
  CHECK(cluster_named("cluster_test.toml").source == "cluster_test.toml");
  CHECK(cluster_named("l4-24gb").source == "l4-24gb");
  CHECK(!usual_cluster(gpu_model("l4-24gb")).nvlink);
}

TEST_CASE("every number of a cluster file has bounds, and counts are whole numbers") {
  const auto error = [](const std::string& section, const std::string& line) {
    const std::string gpu = "[gpu]\nkind = \"h100-80gb\"\n";
    return test::error_of(
        [&] { cluster_of(section == "gpu" ? gpu + line : str(gpu, '[', section, "]\n", line)); });
  };
  struct Row {
    const char *section, *key;
    double least, most;
    bool counts = false;
  };
  for (const auto& [section, key, least, most, counts] : {Row{"gpu", "power_watts", 1, 1e5},
                                                          {"gpu", "price_per_hour", 0, 1e5},
                                                          {"node", "gpus", 1, 1024, true},
                                                          {"node", "link.gbps", 1e-3, 1e5},
                                                          {"node", "link.efficiency", 1e-3, 1},
                                                          {"node", "link.step_us", 0, 1e5},
                                                          {"node", "host.gbps", 1e-3, 1e5},
                                                          {"node", "host.gpus_per_switch", 1, 1024, true},
                                                          {"node", "host.update_gbps", 1e-3, 1e5},
                                                          {"node", "host.issue_us", 0, 1e5},
                                                          {"network", "nics_per_node", 1, 1024, true},
                                                          {"network", "gbps", 1e-3, 1e5},
                                                          {"network", "efficiency", 1e-3, 1},
                                                          {"network", "step_us", 0, 1e5},
                                                          {"jitter", "fixed", 0, 1},
                                                          {"jitter", "step", 0, 1}}) {
    CAPTURE(section);
    CAPTURE(key);
    const auto with = [&, s = std::string(section), k = key](const std::string& value) {
      return error(s, str(k, " = ", value));
    };
    CHECK(with(str(least)).empty());
    CHECK(with(str(static_cast<int64_t>(most))).empty());
    for (const std::string value : {"-1", "2e6", "1e300", "inf", "nan", "\"8\"", "true"})
      CHECK(test::missing_from(with(value), {key, str("from ", least, " to ", most)}) == "");
    CHECK(test::missing_from(with("200000"), {str(key, " is 200000")}) == "");
    if (counts) CHECK(test::missing_from(with("48.5"), {key, "is 48.5", "whole number"}) == "");
  }
  const auto tiers = [&](const char* tier) { return error("network", str("tiers = [{", tier, "}]")); };
  CHECK(tiers("nodes = 4, oversubscription = 1.5").empty());
  CHECK(test::missing_from(tiers("nodes = 4.5, oversubscription = 2"), {"nodes", "whole number"}) == "");
  CHECK(test::missing_from(tiers("nodes = 4, oversubscription = 0.5"), {"0.5", "from 1 to 1000"}) == "");
}

TEST_CASE("text that the TOML parser asserts against is an error, not the end of the program") {
  for (const char* text : {"a = [,]", "[}", "x = {,}"})
    CHECK(test::error_of([&] { cluster_of(text); }).starts_with("cluster_test.toml"));
}

TEST_CASE("a mistake in a cluster file is an error with its line and what to write") {
  const auto error = [](const std::string& text) { return test::error_of([&] { cluster_of(text); }); };
  const std::string gpu = "[gpu]\nkind = \"h100-80gb\"\n";
  CHECK(test::missing_from(error("[node]\ngpus = 8\n"), {"cluster_test.toml", "gpu.kind", "h100-80gb"}) ==
        "");
  CHECK(test::missing_from(error("[gpu]\nkind = 3\n"), {"cluster_test.toml:2", "gpu.kind"}) == "");
  CHECK(test::missing_from(error(gpu + "[network]\ngpbs = 3\n"), {":4", "network.gpbs", "network.gbps"}) ==
        "");
  CHECK(test::missing_from(error(gpu + "[network]\ngbps = -3\n"), {":4", "network.gbps is -3"}) == "");
  CHECK(test::missing_from(error(gpu + "[node]\ngpus = 2.5\n"), {":4", "node.gpus", "whole"}) == "");
  CHECK(test::missing_from(error(gpu + "[network]\ntiers = [{nodes = 4}]\n"), {":4", "network.tiers"}) == "");
  CHECK(test::missing_from(error(gpu + "[node]\nlink = { kind = \"ib\" }\n"),
                           {":4", "node.link.kind", "pcie"}) == "");
  CHECK(test::missing_from(error("[gpu\n"), {"cluster_test.toml:1"}) == "");
}
