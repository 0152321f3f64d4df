#include "train/simulate/cluster.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <variant>

#include <toml++/toml.h>

#include "runtime/check.h"
#include "runtime/spelling.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/fields.h"
#include "train/config/toml_limits.h"
#include "train/simulate/op_table.h"
#include "train/simulate/op_times.h"

namespace flatshard {
namespace {

// Sources. Ring steps: the latencies of the protocol Simple in NCCL's cost model, src/graph/tuning.cc
// (hwLatencies: NVLink 3.4 us, PCI 5.7 us, network 14 us). Efficiency of a ring on NVLink and on network
// cards: the ratios 0.81 and 0.96 with which that model meets the bus bandwidths that SimAI publishes for 8
// to 1024 GPUs (aliyun/SimAI, calbusbw.cc and its tables of ring efficiency). PCIe: 0.8, assumed. A network
// card of 400 Gbit/s carries 48.5 GB/s (calbusbw.cc).
constexpr double kRingStepNvlinkUs = 3.4, kRingStepPcieUs = 5.7, kRingStepNetworkUs = 14;
constexpr double kNvlinkEfficiency = 0.81, kPcieEfficiency = 0.8, kNicEfficiency = 0.96, kNicGbps = 48.5;
// Copies from pinned memory reach 55 of the 64 GB/s of PCIe 5.0 x16 (bench/results, H200), and the same share
// of PCIe 4.0; HGX boards connect two GPUs to a switch.
constexpr double kShareOfBus = 55.0 / 64;
constexpr int64_t kGpusOfSwitch = 2;
// Assumed: AdamW on the host at 50 GB/s for a rank (16 threads beside one H200 reach 82); a kernel launch
// takes the host 4 us (NVIDIA's guidance is 2 to 5 us); ranks differ by 0.5 % for a run and by 0.5 % in each
// step.
constexpr double kUpdateGbps = 50, kIssueUs = 4, kJitter = 0.005;

// Bounds of the keys of a cluster file, wide enough for future machines: of counts, of GB/s, of shares of a
// rate, of microseconds, and of the deviations of a rank's speed.
constexpr Bounds kCount{1, 1024}, kRate{1e-3, 1e5}, kShare{1e-3, 1}, kLatency{0, 1e5}, kDeviation{0, 1};

const toml::table& table_of(const toml::node& node, const std::string& path, const std::string& key) {
  const toml::table* const table = node.as_table();
  check(table, path, ':', node.source().begin.line, ": ", key, " must be a section, such as [node]");
  return *table;
}

// Reads the keys of a cluster file into a Cluster; an unknown key is an Error.
class ClusterFile {
 public:
  ClusterFile(Cluster& cluster, std::string path) : cluster_(cluster), path_(std::move(path)) {}

  void read(const toml::table& root) {
    if (const toml::node* const kind = root.at_path("gpu.kind").node()) {
      const auto name = kind->value_exact<std::string>();
      check(name.has_value(), where(*kind), "gpu.kind must be a string, one of ", gpu_model_names());
      cluster_ = usual_cluster(gpu_model(*name));
      cluster_.source = path_;
    } else {
      fail(str(path_, ": gpu.kind is missing: name one of ", gpu_model_names()));
    }
    if (const toml::node* const kind = root.at_path("node.link.kind").node()) {
      const auto name = kind->value_exact<std::string>();
      check(name == "nvlink" || name == "pcie", where(*kind),
            "node.link.kind must be \"nvlink\" or \"pcie\"");
      cluster_.nvlink = name == "nvlink";
      cluster_.link_efficiency = cluster_.nvlink ? kNvlinkEfficiency : kPcieEfficiency;
      cluster_.link_step_us = cluster_.nvlink ? kRingStepNvlinkUs : kRingStepPcieUs;
    }
    read_section(root, "");
    if (const toml::node* const ops = root.at_path("gpu.ops").node()) {
      const auto name = ops->value_exact<std::string>();
      check(name.has_value(), where(*ops), "gpu.ops must be a path, of a file of bench --device cuda --json");
      cluster_.op_table = (std::filesystem::path(path_).parent_path() / *name).string();
      cluster_.measured_ops = read_op_table(cluster_.op_table, cluster_);
    }
  }

 private:
  // A number and its bounds. A count is a whole number.
  struct Key {
    std::variant<double*, int64_t*> number;
    Bounds bounds;
  };

  std::string where(const toml::node& node) const { return str(path_, ':', node.source().begin.line, ": "); }

  void read_section(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      if (key == "gpu.kind" || key == "gpu.ops" || key == "node.link.kind") continue;
      if (key == "network.tiers")
        read_tiers(node);
      else if (node.is_table())
        read_section(table_of(node, path_, key), key + ".");
      else
        read_number(node, key);
    }
  }

  void read_number(const toml::node& node, const std::string& key) {
    const std::map<std::string, Key> keys{
        {"gpu.power_watts", {&cluster_.power_watts, {1, 1e5}}},
        {"gpu.price_per_hour", {&cluster_.price_per_hour, {0, 1e5}}},
        {"node.gpus", {&cluster_.node_gpus, kCount}},
        {"node.link.gbps", {&cluster_.link_gbps, kRate}},
        {"node.link.efficiency", {&cluster_.link_efficiency, kShare}},
        {"node.link.step_us", {&cluster_.link_step_us, kLatency}},
        {"node.host.gbps", {&cluster_.host_gbps, kRate}},
        {"node.host.gpus_per_switch", {&cluster_.gpus_per_switch, kCount}},
        {"node.host.update_gbps", {&cluster_.update_gbps, kRate}},
        {"node.host.issue_us", {&cluster_.issue_us, kLatency}},
        {"network.nics_per_node", {&cluster_.nics_per_node, kCount}},
        {"network.gbps", {&cluster_.nic_gbps, kRate}},
        {"network.efficiency", {&cluster_.nic_efficiency, kShare}},
        {"network.step_us", {&cluster_.network_step_us, kLatency}},
        {"jitter.fixed", {&cluster_.jitter_fixed, kDeviation}},
        {"jitter.step", {&cluster_.jitter_step, kDeviation}},
    };
    const auto found = keys.find(key);
    if (found == keys.end()) {
      std::vector<std::string> names{"gpu.kind", "gpu.ops", "node.link.kind", "network.tiers"};
      for (const auto& [known, unused] : keys) names.push_back(known);
      const std::string meant = similar_word(key, names);
      fail(str(where(node), key, ": unknown key", meant.empty() ? "" : str("; did you mean ", meant, '?')));
    }
    set(found->second, node, key);
  }

  void set(const Key& key, const toml::node& node, const std::string& name) const {
    const auto [least, most] = key.bounds;
    int64_t* const* const count = std::get_if<int64_t*>(&key.number);
    const bool is_number = node.is_integer() || node.is_floating_point();
    const double value = is_number ? *node.value<double>() : 0;
    check((count ? node.is_integer() : is_number) && value >= least && value <= most, where(node), name,
          is_number ? str(" is ", value, ',') : "", " must be a ", count ? "whole " : "", "number from ",
          least, " to ", most);
    if (count)
      **count = *node.value<int64_t>();
    else
      *std::get<double*>(key.number) = value;
  }

  void read_tiers(const toml::node& node) {
    const toml::array* const tiers = node.as_array();
    constexpr const char* kForm = "network.tiers must be a list such as [{nodes = 32, oversubscription = 2}]";
    check(tiers, where(node), kForm);
    cluster_.tiers.clear();
    for (const toml::node& item : *tiers) {
      const toml::table* const table = item.as_table();
      check(table && table->size() == 2 && table->contains("nodes") && table->contains("oversubscription"),
            where(node), kForm);
      NetworkTier tier;
      set({&tier.nodes, {1, 1 << 20}}, *table->get("nodes"), "nodes of network.tiers");
      set({&tier.oversubscription, {1, 1e3}}, *table->get("oversubscription"),
          "oversubscription of network.tiers");
      check(cluster_.tiers.empty() || cluster_.tiers.back().nodes < tier.nodes, where(node),
            "network.tiers must have ascending numbers of nodes");
      cluster_.tiers.push_back(tier);
    }
  }

  Cluster& cluster_;
  std::string path_;
};

}  // namespace

double Cluster::oversubscription(double nodes) const {
  double most = 1;
  for (const NetworkTier& tier : tiers) {
    most = tier.oversubscription;
    if (nodes <= static_cast<double>(tier.nodes)) break;
  }
  return most;
}

Cluster usual_cluster(const GpuModel& gpu) {
  Cluster c{.source = gpu.name, .gpu = gpu};
  c.nvlink = gpu.link_gbps > gpu.host_gbps;
  c.link_gbps = gpu.link_gbps;
  c.link_efficiency = c.nvlink ? kNvlinkEfficiency : kPcieEfficiency;
  c.link_step_us = c.nvlink ? kRingStepNvlinkUs : kRingStepPcieUs;
  c.host_gbps = gpu.host_gbps * kShareOfBus;
  c.gpus_per_switch = kGpusOfSwitch;
  c.update_gbps = kUpdateGbps;
  c.issue_us = kIssueUs;
  // Hosts with NVLink have a card for each GPU, of 400 Gbit/s in Hopper's generation and of 200 Gbit/s in
  // Ampere's (DGX A100). Hosts of PCIe cards have one card.
  c.nics_per_node = c.nvlink ? 8 : 1;
  c.nic_gbps = gpu.link_gbps >= 450 ? kNicGbps : kNicGbps / 2;
  c.nic_efficiency = kNicEfficiency;
  c.network_step_us = kRingStepNetworkUs;
  c.jitter_fixed = c.jitter_step = kJitter;
  return c;
}

Cluster read_cluster(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 16;
  const std::string text = read_whole_file(path, kMostBytes);
  check_toml_limits(text, path);
  Cluster cluster;
  try {
    const toml::table root = toml::parse(text);
    ClusterFile(cluster, path).read(root);
  } catch (const toml::parse_error& error) {
    fail(str(path, ':', error.source().begin.line, ": ", std::string(error.description())));
  } catch (const BrokenAssertion&) {
    fail(str(path, ": is not valid TOML"));
  }
  return cluster;
}

Cluster cluster_named(const std::string& name) {
  return name.ends_with(".toml") ? read_cluster(name) : usual_cluster(gpu_model(name));
}

double matrix_rate(const Cluster& c, DType compute, bool tf32) {
  return c.cpu ? c.cpu->products : published_matrix_rate(c.gpu, compute, tf32);
}

std::string describe_rates(const Cluster& c) {
  if (c.cpu)
    return str("measured now: for each rank ", std::round(c.cpu->products * 1e-9), " GFLOP/s of products, ",
               fixed(c.gpu.memory_gbps, 1), " GB/s of copies, and the ops of a smaller model",
               c.node_gpus > 1 ? str("; ", fixed(c.link_gbps, 1), " GB/s between ranks") : "");
  const std::string ops = c.op_table.empty() ? "" : str("ops measured in ", c.op_table, "; the rest is ");
  return str(ops, "not measured: published figures of ", c.gpu.name,
             c.source == c.gpu.name ? "" : " and those of " + c.source, ", assuming up to ",
             std::round(100 * most_of_matrix_peak()), " % of ", c.gpu.matrix_tflops, " TFLOP/s, 85 % of ",
             c.gpu.memory_gbps, " GB/s of memory, ", std::round(100 * c.link_efficiency), " % of ",
             c.link_gbps, " GB/s between GPUs of a node of ", c.node_gpus, ", and ", c.nics_per_node, " x ",
             c.nic_gbps, " GB/s between nodes");
}

}  // namespace flatshard
