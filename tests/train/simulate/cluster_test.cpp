#include "train/simulate/cluster.h"

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

TEST_CASE("a mistake in a cluster file is an error with its line and what to write") {
  const auto error = [](const std::string& text) { return test::error_of([&] { cluster_of(text); }); };
  const std::string gpu = "[gpu]\nkind = \"h100-80gb\"\n";
  CHECK(test::missing_from(error("[node]\ngpus = 8\n"), {"cluster_test.toml", "gpu.kind", "h100-80gb"}) ==
        "");
  CHECK(test::missing_from(error("[gpu]\nkind = 3\n"), {"cluster_test.toml:2", "gpu.kind"}) == "");
  CHECK(test::missing_from(error(gpu + "[network]\ngpbs = 3\n"), {":4", "network.gpbs", "network.gbps"}) ==
        "");
  CHECK(test::missing_from(error(gpu + "[network]\ngbps = -3\n"), {":4", "network.gbps", "at least"}) == "");
  CHECK(test::missing_from(error(gpu + "[node]\ngpus = 2.5\n"), {":4", "node.gpus", "whole"}) == "");
  CHECK(test::missing_from(error(gpu + "[network]\ntiers = [{nodes = 4}]\n"), {":4", "network.tiers"}) == "");
  CHECK(test::missing_from(error(gpu + "[node]\nlink = { kind = \"ib\" }\n"),
                           {":4", "node.link.kind", "pcie"}) == "");
  CHECK(test::missing_from(error("[gpu\n"), {"cluster_test.toml:1"}) == "");
}
